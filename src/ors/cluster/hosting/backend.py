"""The seam to an engine that runs hosts (Ray is the one there is), and the directory that hosts report to."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

SILENCE_SECONDS = 5.0
"""Hosts and routers that have been silent for this long are left out. Ray itself takes a minute to notice."""


@dataclass(frozen=True, slots=True)
class HostInfo:
    """A host that is up, as its last heartbeat describes it."""

    slot: int
    incarnation: int
    url: str
    sessions: int
    node: str
    """The engine's id of the machine."""
    retiring: bool = False
    """Whether it takes no new sessions and ends with its last one."""


@dataclass(frozen=True, slots=True)
class Targets:
    """Wishes of operators: the number of hosts, and drained nodes."""

    hosts: tuple[int, int] | None = None
    """The least and the greatest number of hosts."""
    drained: frozenset[str] = frozenset()
    """Nodes that get no new sessions and no new hosts."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The hosts that run, and the wishes of operators."""

    hosts: Sequence[HostInfo]
    targets: Targets = Targets()


class BackendUnavailable(Exception):
    """The engine does not answer now; a later try may succeed."""


class BackendClosed(Exception):
    """The connection to the engine has been closed; no later try can succeed."""


class Backend(Protocol):
    """An engine that runs hosts. `Deployment` decides how many; no method waits for a host.

    All raise `BackendUnavailable` or `BackendClosed`.
    """

    def start(self, slot: int, avoid: frozenset[str]) -> None:
        """Starts a host in a slot, on any node but these."""

    def list(self) -> ClusterState:
        """Returns the hosts that were heard from recently, and the operators' targets."""

    def drain(self, slot: int) -> int | None:
        """Stops new sessions on a host; returns how many it still has, None if it does not answer now.

        Called again until the host is empty: a host that was restarted meanwhile does not know it.
        """

    def undrain(self, slot: int) -> None:
        """Lets a host take new sessions again."""

    def stop(self, slot: int) -> bool:
        """Ends a host with its sessions. Called again until it returns True: the host has ended."""

    def close(self) -> None:
        """Ends whatever still runs."""


@dataclass(frozen=True, slots=True)
class HostURLs:
    urls: tuple[str, ...]
    complete: bool
    """False if there may be others: a registry that has just started has not heard from all yet."""


class Directory:
    """Knows hosts and routers by their heartbeats, and the targets of operators. No request needs it."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._incarnation = secrets.token_hex(8)
        self._hosts: dict[int, tuple[float, HostInfo]] = {}
        self._routers: dict[str, tuple[float, str]] = {}
        self._targets = Targets()

    def heartbeat(self, info: HostInfo) -> HostURLs:
        """Records a host; returns where all hosts are. Older incarnations of its slot are ignored."""
        known = self._hosts.get(info.slot)
        if known is None or known[1].incarnation <= info.incarnation:
            self._hosts[info.slot] = (time.monotonic(), info)
        return self._urls()

    def router_heartbeat(self, node: str, url: str) -> HostURLs:
        self._routers[node] = (time.monotonic(), url)
        return self._urls()

    def _urls(self) -> HostURLs:
        urls = tuple(info.url for info in self.hosts())
        return HostURLs(urls, time.monotonic() - self._started > SILENCE_SECONDS)

    def hosts(self) -> list[HostInfo]:
        since = time.monotonic() - SILENCE_SECONDS
        return [info for _, (at, info) in sorted(self._hosts.items()) if at >= since]

    def routers(self) -> dict[str, str]:
        since = time.monotonic() - SILENCE_SECONDS
        return {node: url for node, (at, url) in self._routers.items() if at >= since}

    def forget(self, slot: int) -> None:
        self._hosts.pop(slot, None)

    def scale(self, least: int, most: int) -> None:
        self._targets = Targets((least, most), self._targets.drained)

    def drain(self, node: str) -> None:
        self._targets = Targets(self._targets.hosts, self._targets.drained | {node})

    def undrain(self, node: str) -> None:
        self._targets = Targets(self._targets.hosts, self._targets.drained - {node})

    def state(self) -> tuple[list[HostInfo], Targets, str]:
        """Returns hosts, targets, and which incarnation of the directory this is."""
        return self.hosts(), self._targets, self._incarnation

    def restore(self, targets: Targets) -> Targets:
        """Takes over the targets of an earlier incarnation; newer ones win. Returns the result."""
        hosts = self._targets.hosts or targets.hosts
        self._targets = Targets(hosts, self._targets.drained | targets.drained)
        return self._targets
