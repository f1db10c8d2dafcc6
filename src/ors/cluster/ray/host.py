"""One server with its sessions, as a Ray actor."""

import os
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import ray

from ors import Environment, Server
from ors.cluster.hosting.backend import HostInfo, HostURLs
from ors.cluster.member import Member
from ors.cluster.ray.heartbeat import Heartbeat, directory
from ors.server.identity import Identity

START_SECONDS = 60.0
LOOK_SECONDS = 0.5


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
        self._member = Member(
            Server(environments, **options),
            host or ray.util.get_node_ip_address(),
            0,
            identity=Identity(slot),
            insecure=insecure,
            on_start=lambda url: up.set(),
        )
        self._failure: BaseException | None = None
        self._server = threading.Thread(target=self._run, name="ors-server")
        self._server.start()
        while not up.wait(LOOK_SECONDS):  # an environment may take long to start
            if not self._server.is_alive():
                raise self._failure or RuntimeError("The server has ended before it had started")
        self._url = self._member.url
        self._heartbeat = Heartbeat(lambda: known.heartbeat.remote(self.info()), self._update)

    def _run(self) -> None:
        try:
            self._member.run()
        except BaseException as error:
            self._failure = error
            raise

    def info(self) -> HostInfo:
        runtime = self._member.app.runtime
        me, sessions = runtime.identity, len(self._member.app.sessions)
        return HostInfo(me.slot, me.incarnation, self._url, sessions, self._node, runtime.retiring)

    def pid(self) -> int:
        """Returns the id of its process."""
        return os.getpid()

    def retire(self, whether: bool = True) -> int:
        """Stops or resumes taking new sessions; returns how many sessions and forwarded requests it has."""
        self._member.app.runtime.retiring = whether
        return len(self._member.app.sessions) + len(self._member.forwarding.waiting())

    def stop(self) -> None:
        """Ends its sessions and the server."""
        self._heartbeat.stop()
        self._member.should_exit = True
        self._server.join()

    def _update(self, hosts: HostURLs) -> None:
        others = [url for url in hosts.urls if url != self._url]
        self._member.call_soon(partial(self._member.peers.update, others, complete=hosts.complete))
