"""The number of hosts, decided over a backend in memory: time is an argument."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from ors.cluster.hosting import (
    EMPTY_SECONDS,
    LOST_SECONDS,
    START_SECONDS,
    Backend,
    BackendUnavailable,
    Bounds,
    Deployment,
    HostInfo,
    Targets,
)

BOUNDS = Bounds(least=2, most=4, sessions=10, calm_seconds=60, drain_seconds=600)


@dataclass
class Memory:
    """A backend whose hosts are entries of a dictionary. Each is on the first node that may have it."""

    nodes: list[str] = field(default_factory=lambda: ["a", "b", "c"])
    hosts: dict[int, HostInfo] = field(default_factory=dict)
    targets: Targets = field(default_factory=Targets)
    drained: set[int] = field(default_factory=set)
    placed: list[tuple[int, str]] = field(default_factory=list)
    silent: set[int] = field(default_factory=set)
    """Hosts that neither send heartbeats nor answer."""
    stopping: set[int] = field(default_factory=set)
    failures: list[Exception] = field(default_factory=list)
    """Raised by `list`, the last one first."""
    closed: bool = False

    def start(self, slot: int, avoid: frozenset[str]) -> None:
        assert slot not in self.hosts
        node = next(node for node in self.nodes if node not in avoid)
        self.placed.append((slot, node))
        self.hosts[slot] = HostInfo(slot, 1, f"http://{slot}", 0, node)

    def list(self) -> tuple[Sequence[HostInfo], Targets]:
        if self.failures:
            raise self.failures.pop()
        up = [info for slot, info in self.hosts.items() if slot not in self.silent]
        return up, self.targets

    def scale(self, least: int, most: int) -> None:
        self.targets = Targets((least, most), self.targets.drained)

    def drain(self, slot: int) -> int | None:
        self.drained.add(slot)
        return None if slot in self.silent else self.hosts[slot].sessions

    def undrain(self, slot: int) -> None:
        self.drained.discard(slot)

    def stop(self, slot: int) -> bool:
        if slot not in self.stopping:
            self.stopping.add(slot)
            return False
        self.stopping.discard(slot)
        self.drained.discard(slot)
        del self.hosts[slot]
        return True

    def close(self) -> None:
        self.closed = True

    def fill(self, slot: int, sessions: int) -> None:
        """Gives a host so many sessions."""
        info = self.hosts[slot]
        self.hosts[slot] = HostInfo(slot, info.incarnation, info.url, sessions, info.node)


def deployed(backend: Backend) -> Deployment:
    """Two hosts that were heard from at the time 0."""
    made = Deployment(backend, BOUNDS)
    made.tick(0.0)
    made.tick(0.0)
    return made


def test_hosts_are_added_at_once_and_the_emptiest_retire_after_a_calm_time() -> None:
    backend = Memory()
    made = deployed(backend)
    assert backend.placed == [(0, "a"), (1, "a")]
    backend.fill(0, 25)
    backend.fill(1, 3)
    made.tick(1.0)
    assert sorted(backend.hosts) == [0, 1, 2]
    backend.fill(0, 11)
    made.tick(2.0)
    made.tick(61.9)
    assert backend.drained == set()
    made.tick(62.0)
    assert backend.drained == {2}
    made.tick(62.0 + EMPTY_SECONDS)
    assert backend.stopping == {2}
    made.tick(62.5 + EMPTY_SECONDS)
    assert sorted(backend.hosts) == [0, 1]


def test_a_retired_host_ends_with_its_last_session_or_at_the_deadline() -> None:
    backend = Memory()
    made = deployed(backend)
    backend.scale(3, 3)
    made.tick(1.0)
    for slot in (0, 1, 2):
        backend.fill(slot, 5 + slot)
    backend.scale(1, 1)
    made.tick(2.0)
    assert backend.drained == {0, 1}  # the emptiest
    backend.fill(0, 0)
    made.tick(3.0)
    backend.fill(0, 1)  # a client used its id after all
    made.tick(3.0 + EMPTY_SECONDS)
    assert backend.stopping == set()
    made.tick(1.9 + BOUNDS.drain_seconds)
    assert backend.stopping == set()
    made.tick(2.0 + BOUNDS.drain_seconds)
    assert backend.stopping == {0, 1}


def test_a_host_that_is_needed_again_stays_instead_of_a_new_one() -> None:
    backend = Memory()
    made = deployed(backend)
    backend.fill(0, 5)
    backend.fill(1, 4)
    backend.scale(1, 1)
    made.tick(1.0)
    assert backend.drained == {1}
    backend.scale(2, 2)
    made.tick(2.0)
    assert backend.drained == set()
    assert len(backend.placed) == 2


def test_hosts_of_a_drained_node_are_replaced_elsewhere() -> None:
    backend = Memory()
    made = deployed(backend)
    backend.fill(0, 1)
    backend.fill(1, 1)
    backend.targets = Targets(drained=frozenset({"a"}))
    made.tick(1.0)
    assert backend.drained == {0, 1}
    assert backend.placed[2:] == [(2, "b"), (3, "b")]
    backend.scale(3, 3)
    made.tick(2.0)  # none of the retired ones stays: their node is drained
    assert backend.drained == {0, 1}
    assert backend.placed[4:] == [(4, "b")]


def test_a_silent_host_is_replaced_on_another_node_and_counts_again_when_it_is_back() -> None:
    backend = Memory()
    made = deployed(backend)
    backend.silent = {0}
    made.tick(LOST_SECONDS - 0.1)
    assert len(backend.placed) == 2
    made.tick(LOST_SECONDS)
    assert backend.placed[2:] == [(2, "b")]
    backend.silent = set()
    made.tick(LOST_SECONDS + 1)
    made.tick(LOST_SECONDS + 1 + BOUNDS.calm_seconds)
    assert len(backend.drained) == 1


def test_a_host_that_is_never_heard_from_is_not_counted() -> None:
    backend = Memory(silent={0, 1, 2, 3})
    made = Deployment(backend, BOUNDS)
    made.tick(0.0)
    made.tick(START_SECONDS - 0.1)
    assert len(backend.placed) == 2
    made.tick(START_SECONDS)
    assert [slot for slot, _ in backend.placed] == [0, 1, 2, 3]


def test_a_retired_host_that_does_not_answer_is_asked_again() -> None:
    backend = Memory()
    made = deployed(backend)
    backend.scale(1, 1)
    made.tick(1.0)
    backend.silent = {1}
    made.tick(1.0 + EMPTY_SECONDS)
    assert backend.stopping == set()
    backend.silent = set()
    made.tick(1.1 + EMPTY_SECONDS)
    assert backend.stopping == {1}


def test_the_thread_of_a_deployment_survives_failures_of_its_backend(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ors.cluster.hosting.TICK_SECONDS", 0.01)
    backend = Memory()
    made = Deployment(backend, BOUNDS)
    with caplog.at_level(logging.WARNING):
        made.start(2)
        backend.failures += [KeyError("no such node"), BackendUnavailable("busy")]
        while backend.failures:
            pass
        backend.scale(3, 3)
        while len(backend.hosts) < 3:
            pass
        made.stop()
    assert "The cluster does not answer: busy" in caplog.text
    assert "Failed to start or stop hosts; trying again" in caplog.text
    assert backend.stopping == {0, 1, 2}
    assert backend.closed


def test_a_host_that_cannot_be_placed_at_the_start_ends_all() -> None:
    backend = Memory(nodes=[])
    made = Deployment(backend, BOUNDS)
    with pytest.raises(StopIteration):
        made.start(1)
    assert backend.closed
