"""The router of one node, as a Ray actor."""

import os
import threading
from collections.abc import Sequence
from functools import partial

import ray

from ors.cluster.hosting.backend import HostURLs
from ors.cluster.link.handover import listeners
from ors.cluster.ray.heartbeat import Heartbeat, directory
from ors.cluster.ray.host import START_SECONDS
from ors.cluster.router_server import RouterServer
from ors.limits import Limits


class RouterActor:
    """Runs a router in a thread, on a port that is the same on every node. Its death loses no session."""

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
        # A router that knows no hosts would refuse clients, so it learns of them before it listens.
        hosts = [info.url for info in ray.get(known.hosts.remote(), timeout=START_SECONDS)]
        self._runner = RouterServer(
            hosts, host, port, limits, api_key, lambda url: up.set(), cors_origins=cors_origins
        )
        # Shared, so that several nodes on one machine can use one port.
        self._listener = listeners(host, port, 1, shared=True)[0]
        self._thread = threading.Thread(
            target=self._runner.run, kwargs={"sockets": [self._listener]}, name="ors-router"
        )
        self._thread.start()
        if not up.wait(START_SECONDS):
            raise TimeoutError("The router does not start")
        url = self._runner.url
        self._heartbeat = Heartbeat(lambda: known.router_heartbeat.remote(node, url), self._update)

    def pid(self) -> int:
        """Returns the id of its process."""
        return os.getpid()

    def stop(self) -> None:
        """Ends once the answers that it forwards are complete."""
        self._heartbeat.stop()
        self._runner.should_exit = True
        self._thread.join()

    def _update(self, hosts: HostURLs) -> None:
        self._runner.call_soon(partial(self._runner.app.peers.update, hosts.urls, complete=hosts.complete))
