"""Host registry; heartbeats refill it after a restart."""

import secrets
import time
from dataclasses import dataclass

from ors.cluster.backend import HostInfo, Targets

SILENCE_SECONDS = 5.0
"""Hosts and routers that have been silent for this long are left out. Ray itself takes a minute to notice."""


@dataclass(frozen=True, slots=True)
class HostURLs:
    """Where hosts can be reached."""

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
        """Records a router; returns where all hosts are."""
        self._routers[node] = (time.monotonic(), url)
        return self._urls()

    def _urls(self) -> HostURLs:
        urls = tuple(info.url for info in self.hosts())
        return HostURLs(urls, time.monotonic() - self._started > SILENCE_SECONDS)

    def hosts(self) -> list[HostInfo]:
        """Returns the hosts that were heard from recently."""
        since = time.monotonic() - SILENCE_SECONDS
        return [info for _, (at, info) in sorted(self._hosts.items()) if at >= since]

    def routers(self) -> dict[str, str]:
        """Returns the URLs of the routers that were heard from recently, by node."""
        since = time.monotonic() - SILENCE_SECONDS
        return {node: url for node, (at, url) in self._routers.items() if at >= since}

    def forget(self, slot: int) -> None:
        """Removes a host that has ended."""
        self._hosts.pop(slot, None)

    def scale(self, least: int, most: int) -> None:
        """Sets the target number of hosts."""
        self._targets = Targets((least, most), self._targets.drained)

    def drain(self, node: str) -> None:
        """Allows no hosts on that node."""
        self._targets = Targets(self._targets.hosts, self._targets.drained | {node})

    def undrain(self, node: str) -> None:
        """Allows hosts on that node again."""
        self._targets = Targets(self._targets.hosts, self._targets.drained - {node})

    def state(self) -> tuple[list[HostInfo], Targets, str]:
        """Returns hosts, targets, and which incarnation of the directory this is."""
        return self.hosts(), self._targets, self._incarnation

    def restore(self, targets: Targets) -> Targets:
        """Takes over the targets of an earlier incarnation; newer ones win. Returns the result."""
        hosts = self._targets.hosts or targets.hosts
        self._targets = Targets(hosts, self._targets.drained | targets.drained)
        return self._targets
