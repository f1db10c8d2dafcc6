"""Hosts that an engine such as Ray runs: the seam, their directory, and how many there should be."""

import logging
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

from ors._protocol import MAX_SLOT

log = logging.getLogger("ors.cluster")

TICK_SECONDS = 0.5
EMPTY_SECONDS = 3.0
"""An empty host runs on for this long: a client may have an id for it, and no session yet."""
START_SECONDS = 60.0
"""A host that has not been heard from this long after its start is not counted."""
LOST_SECONDS = 10.0
"""A host that has been silent for this long is not counted: its node may be frozen."""
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

    def list(self) -> tuple[Sequence[HostInfo], Targets]:
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
        self._hosts: dict[int, tuple[float, HostInfo]] = {}
        self._routers: dict[str, tuple[float, str]] = {}
        self._targets = Targets()
        self._restored = False

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

    def state(self, known: Targets | None = None) -> tuple[list[HostInfo], Targets]:
        """Returns hosts and targets. `known` ones are taken over after a restart; newer ones win."""
        if known is not None and not self._restored:
            self._restored = True
            hosts = self._targets.hosts or known.hosts
            self._targets = Targets(hosts, self._targets.drained | known.drained)
        return self.hosts(), self._targets


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and the greatest number of hosts, and how load decides between them."""

    least: int
    most: int
    sessions: int = 100
    """Target number of sessions per host."""
    calm_seconds: float = 60.0
    """A host is retired only when it was not needed for this long."""
    drain_seconds: float = 3600.0
    """A retired host keeps its sessions for at most this long."""

    def wanted(self, sessions: int) -> int:
        return max(self.least, min(self.most, math.ceil(sessions / self.sessions)))


class ScaleDownDelay:
    def __init__(self) -> None:
        self._since: float | None = None

    def settled(self, wanted: int, there: int, bounds: Bounds, now: float) -> int:
        """Returns how many hosts there should be now: more at once, fewer after a delay."""
        if wanted >= there or there > bounds.most:
            self._since = None
            return wanted if wanted >= there else bounds.most
        if self._since is None:
            self._since = now
        return wanted if now - self._since >= bounds.calm_seconds else there


@dataclass(slots=True)
class _Host:
    expected: float
    """When it is heard from at the latest, or it is not counted."""
    node: str = ""
    until: float | None = None
    """When it ends at the latest, if it retires."""
    empty: float | None = None
    """Since when it has no session, if it retires."""


class Deployment:
    """Hosts that one backend runs. A thread places and retires them; no request goes through it."""

    def __init__(self, backend: Backend, bounds: Bounds) -> None:
        self._backend = backend
        self._bounds = bounds
        self._hosts: dict[int, _Host] = {}
        self._ending: set[int] = set()
        self._drained: frozenset[str] = frozenset()
        self._delay = ScaleDownDelay()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ors-deployment", daemon=True)

    def hosts(self) -> list[HostInfo]:
        return list(self._backend.list()[0])

    def start(self, hosts: int) -> Self:
        """Starts the first hosts and waits until they are up. If one cannot start, all are ended."""
        try:
            for _ in range(hosts):
                self._add(time.monotonic())
            self._wait_until_up(hosts)
        except BaseException:
            self.stop()
            raise
        self._thread.start()
        return self

    def _wait_until_up(self, hosts: int) -> None:
        while len(self.hosts()) < hosts:
            time.sleep(TICK_SECONDS / 5)

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        for slot in self._hosts.keys() | self._ending:
            self._backend.stop(slot)
        self._backend.close()

    def _run(self) -> None:
        while not self._stopped.wait(TICK_SECONDS):
            try:
                self.tick(time.monotonic())
            except BackendClosed:
                return
            except BackendUnavailable as error:
                log.warning("The cluster does not answer: %s", error)
            except Exception:
                # Without this thread, no host would ever be started or ended again.
                log.exception("Failed to start or stop hosts; trying again")

    def tick(self, now: float) -> None:
        """Compares what runs with what is needed; starts, retires and ends hosts."""
        hosts, targets = self._backend.list()
        self._drained = targets.drained
        if targets.hosts is not None:
            least, most = targets.hosts
            self._bounds = replace(self._bounds, least=least, most=most)
        for info in hosts:
            if info.slot in self._hosts:
                self._hosts[info.slot].node = info.node
                self._hosts[info.slot].expected = now + LOST_SECONDS
            if info.node in self._drained:
                self._retire(info.slot, now)
        self._fit({info.slot: info.sessions for info in hosts}, now)
        for slot in [slot for slot, host in self._hosts.items() if host.until is not None]:
            self._end_if_due(slot, now)
        for slot in list(self._ending):
            if self._backend.stop(slot):
                self._ending.discard(slot)

    def _fit(self, sessions: dict[int, int], now: float) -> None:
        """Adds the hosts that are missing, or retires the emptiest of those that are too many."""
        staying = [slot for slot, host in self._hosts.items() if host.until is None and host.expected > now]
        wanted = self._bounds.wanted(sum(sessions.values()))
        wanted = self._delay.settled(wanted, len(staying), self._bounds, now)
        for _ in range(wanted - len(staying)):
            self._add(now)
        staying.sort(key=lambda slot: (sessions.get(slot, 0), -slot))
        for slot in staying[: max(0, len(staying) - wanted)]:
            self._retire(slot, now)

    def _add(self, now: float) -> None:
        """Keeps a host that was about to end, or else starts one in a free slot."""
        for slot, host in self._hosts.items():
            if host.until is not None and host.expected > now and host.node not in self._drained:
                host.until = host.empty = None
                self._backend.undrain(slot)
                return
        silent = {host.node for host in self._hosts.values() if host.expected <= now} - {""}
        taken = self._hosts.keys() | self._ending
        slot = next(slot for slot in range(MAX_SLOT + 1) if slot not in taken)
        self._backend.start(slot, self._drained | silent)
        self._hosts[slot] = _Host(now + START_SECONDS)

    def _retire(self, slot: int, now: float) -> None:
        host = self._hosts.get(slot)
        if host is not None and host.until is None:
            log.info("Host %d is retiring: it takes no new sessions and ends with its last one", slot)
            host.until = now + self._bounds.drain_seconds

    def _end_if_due(self, slot: int, now: float) -> None:
        host = self._hosts[slot]
        sessions = self._backend.drain(slot)
        if sessions is None:
            return
        host.empty = None if sessions else host.empty or now
        empty = host.empty is not None and now - host.empty >= EMPTY_SECONDS
        if empty or (host.until is not None and now >= host.until):
            del self._hosts[slot]
            self._ending.add(slot)
