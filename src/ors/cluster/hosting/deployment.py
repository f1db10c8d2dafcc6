"""Keeps as many hosts running as are needed, on any backend."""

import logging
import math
import threading
import time
from dataclasses import dataclass, replace
from typing import Self

from ors._protocol import MAX_SLOT
from ors.cluster.hosting.backend import Backend, BackendClosed, BackendUnavailable, HostInfo

log = logging.getLogger("ors.cluster")

TICK_SECONDS = 0.5
EMPTY_SECONDS = 3.0
"""An empty host runs on for this long: a client may have an id for it, and no session yet."""
START_SECONDS = 60.0
"""A host that has not been heard from this long after its start is not counted."""
LOST_SECONDS = 10.0
"""A host that has been silent for this long is not counted: its node may be frozen."""


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
    """Delays scale-down until the load has stayed low."""

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
        return list(self._backend.list().hosts)

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
        state = self._backend.list()
        self._drained = state.targets.drained
        if state.targets.hosts is not None:
            least, most = state.targets.hosts
            self._bounds = replace(self._bounds, least=least, most=most)
        for info in state.hosts:
            if info.slot in self._hosts:
                self._hosts[info.slot].node = info.node
                self._hosts[info.slot].expected = now + LOST_SECONDS
            if info.node in self._drained:
                self._retire(info.slot, now)
        self._fit({info.slot: info.sessions for info in state.hosts}, now)
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
