"""Servers as Ray actors: placed, watched and restarted by Ray, which no request goes through."""

import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray

from ors import Environment, Server
from ors.cluster.member import Member
from ors.server.identity import Identity

HEARTBEAT_SECONDS = 0.5
SILENCE_SECONDS = 5.0
"""A host that has not been heard of for this long is left out. Ray itself takes a minute to notice."""
DEFAULT_NAMESPACE = "ors"
_DIRECTORY = "ors-directory"


@dataclass(frozen=True, slots=True)
class Row:
    """What the directory knows of a host."""

    slot: int
    incarnation: int
    url: str
    sessions: int
    node: str
    """Ray's id of its node."""


class Directory:
    """Where hosts are, as they say themselves. It is never on the way of a request, and may be lost."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[float, Row]] = {}

    def beat(self, row: Row) -> list[str]:
        """A host lives; it is told where all others are."""
        known = self._rows.get(row.slot)
        if known is None or known[1].incarnation <= row.incarnation:
            self._rows[row.slot] = (time.monotonic(), row)
        return [each.url for each in self.rows()]

    def rows(self) -> list[Row]:
        """The hosts that have been heard of lately."""
        since = time.monotonic() - SILENCE_SECONDS
        return [row for _, (at, row) in sorted(self._rows.items()) if at >= since]

    def forget(self, slot: int) -> None:
        """A host is to be no more."""
        self._rows.pop(slot, None)


class Host:
    """One server with its sessions. Ray starts it again when it dies, as another incarnation."""

    def __init__(
        self,
        slot: int,
        environments: Sequence[type[Environment]],
        options: Mapping[str, Any],
        host: str,
        insecure: bool,
        directory: Any,
    ) -> None:
        self._directory = directory
        self._raylet = os.getppid()
        self._up = threading.Event()
        host = host or ray.util.get_node_ip_address()
        self._member = Member(
            Server(environments, **options),
            host,
            0,
            identity=Identity(slot),
            insecure=insecure,
            on_start=lambda url: self._up.set(),
        )
        self._server = threading.Thread(target=self._member.run, name="ors-server")
        self._server.start()
        self._up.wait(60)
        self._url = self._member.url
        self._heart = threading.Thread(target=self._beat, name="ors-heartbeat", daemon=True)
        self._heart.start()

    def info(self) -> Row:
        """Who and where it is."""
        me = self._member.app.house.identity
        node = ray.get_runtime_context().get_node_id()
        return Row(me.slot, me.incarnation, self._url, len(self._member.app.sessions), node)

    def pid(self) -> int:
        """Its process."""
        return os.getpid()

    def drain(self) -> int:
        """Takes no new sessions; says how many there are still."""
        self._member.app.house.retiring = True
        return len(self._member.app.sessions)

    def stop(self) -> None:
        """Ends its sessions and its server."""
        self._member.should_exit = True
        self._server.join()

    def _beat(self) -> None:
        loop = self._member.servers[0].get_loop()
        while self._server.is_alive():
            if os.getppid() != self._raylet:
                os._exit(1)  # the raylet is dead: Ray has a replacement for us somewhere, or will have
            try:
                places = ray.get(self._directory.beat.remote(self.info()), timeout=SILENCE_SECONDS)
            except ray.exceptions.RayError:
                places = None  # the directory is being restarted: what is known still holds
            if places is not None and not loop.is_closed():
                others = [place for place in places if place != self._url]
                loop.call_soon_threadsafe(self._member.peers.meet, others)
            time.sleep(HEARTBEAT_SECONDS)


@dataclass(slots=True)
class Deployment:
    """Hosts that run, each a door to all."""

    directory: Any
    hosts: dict[int, Any]
    _launch: Any

    def rows(self) -> list[Row]:
        """The hosts that are up."""
        found: list[Row] = ray.get(self.directory.rows.remote())
        return found

    def urls(self) -> list[str]:
        """Where clients may connect: any of these."""
        return [row.url for row in self.rows()]

    def scale(self, count: int, drain_seconds: float = 3600.0) -> None:
        """So many hosts from now on. Those that go are drained first: their sessions may end."""
        for slot in range(count):
            if slot not in self.hosts:
                self.hosts[slot] = self._launch(slot)
        ray.get([host.info.remote() for host in self.hosts.values()])
        for slot in sorted(self.hosts, reverse=True)[: max(0, len(self.hosts) - count)]:
            self.remove(slot, drain_seconds)

    def remove(self, slot: int, drain_seconds: float = 3600.0) -> None:
        """Ends a host when its sessions have ended, or the time is over."""
        host = self.hosts.pop(slot)
        deadline = time.monotonic() + drain_seconds
        while ray.get(host.drain.remote()) and time.monotonic() < deadline:
            time.sleep(HEARTBEAT_SECONDS)
        ray.get(host.stop.remote())
        ray.kill(host)
        ray.get(self.directory.forget.remote(slot))

    def stop(self) -> None:
        """Ends everything."""
        for host in self.hosts.values():
            try:
                ray.get(host.stop.remote(), timeout=60)
            except ray.exceptions.RayError:
                continue  # it has died by itself
            ray.kill(host)
        ray.kill(self.directory)


def deploy(
    environments: Sequence[type[Environment]],
    *,
    hosts: int,
    host: str = "",
    insecure: bool = False,
    num_cpus: float = 1,
    resources: Mapping[str, float] | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    namespace: str = DEFAULT_NAMESPACE,
    **options: Any,
) -> Deployment:
    """Starts so many servers in the Ray cluster that this process is connected to (`ray.init(address=…)`).

    `host` is the address that servers listen on; without it, that of their node, which needs `api_keys` or
    `insecure`. `options` are the Server's own.
    """
    directory = (
        ray.remote(Directory)
        .options(name=_DIRECTORY, namespace=namespace, get_if_exists=True, num_cpus=0.01, max_restarts=-1)
        .remote()
    )
    actor = ray.remote(Host).options(
        num_cpus=num_cpus,
        resources=dict(resources or {}),
        runtime_env=dict(runtime_env) if runtime_env else None,
        max_restarts=-1,
        max_task_retries=-1,
        max_concurrency=4,
        scheduling_strategy="SPREAD",
    )

    def launch(slot: int) -> Any:
        return actor.remote(slot, list(environments), options, host, insecure, directory)

    deployment = Deployment(directory, {}, launch)
    deployment.scale(hosts)
    while len(deployment.rows()) < hosts:
        time.sleep(HEARTBEAT_SECONDS)
    return deployment
