"""A router of one node, as an actor."""

import os
import threading
from collections.abc import Sequence
from functools import partial

import ray

from ors.cluster.directory import Places
from ors.cluster.local.spawn import listeners
from ors.cluster.ray.heartbeat import Heartbeat, directory
from ors.cluster.ray.host import START_SECONDS
from ors.cluster.router_server import RouterServer
from ors.limits import Limits


class RouterActor:
    """Stands at a port that is the same on every node. It holds nothing, and may die at any time."""

    def __init__(
        self,
        host: str,
        port: int,
        limits: Limits,
        api_key: str,
        cors_origins: Sequence[str],
        namespace: str,
    ) -> None:
        known = directory(namespace)
        host = host or ray.util.get_node_ip_address()
        up = threading.Event()
        node = ray.get_runtime_context().get_node_id()
        # One that knows no hosts would turn clients away: it meets them before it listens.
        hosts = [row.url for row in ray.get(known.rows.remote(), timeout=START_SECONDS)]
        self._runner = RouterServer(
            hosts, host, port, limits, api_key, lambda url: up.set(), cors_origins=cors_origins
        )
        # Shared, so that nodes of one machine can stand at one port too.
        self._listener = listeners(host, port, 1, shared=True)[0]
        self._thread = threading.Thread(
            target=self._runner.run, kwargs={"sockets": [self._listener]}, name="ors-router"
        )
        self._thread.start()
        if not up.wait(START_SECONDS):
            raise TimeoutError("the router does not start")
        url = self._runner.url
        self._heart = Heartbeat(lambda: known.beat_front.remote(node, url), self._meet)

    def pid(self) -> int:
        """Its process."""
        return os.getpid()

    def stop(self) -> None:
        """Ends when the answers that are under way are through."""
        self._heart.stop()
        self._runner.should_exit = True
        self._thread.join()

    def _meet(self, places: Places) -> None:
        loop = self._runner.servers[0].get_loop()
        if not loop.is_closed():
            loop.call_soon_threadsafe(partial(self._runner.front.peers.meet, places.urls, all=places.all))
