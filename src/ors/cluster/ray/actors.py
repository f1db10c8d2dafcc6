"""The actors that run servers and routers, and how they report to the directory."""

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any

import ray

from ors import Environment, Server
from ors.cluster.handover import listeners
from ors.cluster.hosting import SILENCE_SECONDS, HostInfo, HostURLs
from ors.cluster.servers import LinkedServer, RouterServer
from ors.limits import Limits
from ors.server.sessions.shared import Identity

log = logging.getLogger("ors.cluster")

DIRECTORY = "ors-directory"
HEARTBEAT_SECONDS = 0.5
START_SECONDS = 60.0
LOOK_SECONDS = 0.5


def directory(namespace: str) -> Any:
    """Returns Ray's handle of the directory of a namespace.

    By its name: a handle among an actor's arguments would be kept in the memory of the driver's node, without
    which the actor could not be started again.

    Raises:
        ValueError: nothing is deployed there.
    """
    return ray.get_actor(DIRECTORY, namespace=namespace)


class Host:
    """Runs a server in a thread. When the process dies, Ray starts it again, as another incarnation."""

    def __init__(
        self,
        slot: int,
        environments: Sequence[type[Environment]],
        options: Mapping[str, Any],
        host: str,
        insecure: bool,
        namespace: str,
    ) -> None:
        known = directory(namespace)
        up = threading.Event()
        self._node = ray.get_runtime_context().get_node_id()
        self._server = LinkedServer(
            Server(environments, **options),
            host or ray.util.get_node_ip_address(),
            0,
            identity=Identity(slot),
            insecure=insecure,
            on_start=lambda url: up.set(),
        )
        self._running = _started(self._server.run, up)
        self._url = self._server.url
        self._heartbeat = _Heartbeat(lambda: known.heartbeat.remote(self.info()), self._update)

    def info(self) -> HostInfo:
        sessions = self._server.app.sessions
        me, count = sessions.identity, len(sessions)
        return HostInfo(me.slot, me.incarnation, self._url, count, self._node, sessions.retiring)

    def pid(self) -> int:
        return os.getpid()

    def retire(self, whether: bool = True) -> int:
        """Stops or resumes taking new sessions; returns how many sessions and forwarded requests it has."""
        self._server.app.retire(whether)
        return len(self._server.app.sessions) + len(self._server.forwarding.waiting())

    def stop(self) -> None:
        """Ends its sessions and the server."""
        self._heartbeat.stop()
        self._server.should_exit = True
        wait([self._running])

    def _update(self, hosts: HostURLs) -> None:
        others = [url for url in hosts.urls if url != self._url]
        self._server.call_soon(partial(self._server.peers.update, others, complete=hosts.complete))


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
        sockets = listeners(host, port, 1, shared=True)
        self._running = _started(partial(self._runner.run, sockets=sockets), up)
        url = self._runner.url
        self._heartbeat = _Heartbeat(lambda: known.router_heartbeat.remote(node, url), self._update)

    def pid(self) -> int:
        return os.getpid()

    def stop(self) -> None:
        """Ends once the answers that it forwards are complete."""
        self._heartbeat.stop()
        self._runner.should_exit = True
        wait([self._running])

    def _update(self, hosts: HostURLs) -> None:
        self._runner.call_soon(partial(self._runner.app.peers.update, hosts.urls, complete=hosts.complete))


def _started(run: Callable[[], None], up: threading.Event) -> Future[None]:
    """Runs a server or router in its own thread until `up` is set. Raises why it ended before that."""
    running = ThreadPoolExecutor(1, "ors-server").submit(run)
    while not up.wait(LOOK_SECONDS):  # an environment may take long to start
        if running.done():
            running.result()
            raise RuntimeError("The server ended during startup")
    running.add_done_callback(_log_failure)
    return running


def _log_failure(ended: Future[None]) -> None:
    error = ended.exception()
    if error is not None:
        log.error("The server has failed", exc_info=error)


class _Heartbeat:
    """Reports to the directory from a thread, passes on where all hosts are, and ends with its raylet."""

    def __init__(self, send: Callable[[], Any], on_urls: Callable[[HostURLs], None]) -> None:
        self._send = send
        self._on_urls = on_urls
        self._raylet = os.getppid()
        self._stopped = threading.Event()
        # Two threads: the raylet is watched also while the directory cannot be reached.
        for work in (self._report, self._watch):
            threading.Thread(target=work, name="ors-heartbeat", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _report(self) -> None:
        while not self._stopped.is_set():
            try:
                self._on_urls(ray.get(self._send(), timeout=SILENCE_SECONDS))
            except ray.exceptions.RayError as error:
                # The directory is being restarted: what is known is still true.
                log.debug("The directory does not answer: %s", error)
            self._stopped.wait(HEARTBEAT_SECONDS)

    def _watch(self) -> None:
        while not self._stopped.wait(HEARTBEAT_SECONDS):
            if os.getppid() != self._raylet:
                os._exit(1)  # the raylet is dead: Ray starts this actor again elsewhere
