"""How many hosts the load needs, and what the directory knows, without a cluster."""

import time

import pytest

from ors.cluster.hosting import Bounds, Directory, HostInfo, HostURLs, ScaleDownDelay, Targets

BOUNDS = Bounds(least=2, most=5, sessions=10, calm_seconds=60)


@pytest.mark.parametrize(("sessions", "hosts"), [(0, 2), (20, 2), (21, 3), (50, 5), (500, 5)])
def test_there_is_a_host_for_so_many_sessions_between_the_bounds(sessions: int, hosts: int) -> None:
    assert BOUNDS.wanted(sessions) == hosts


def test_more_come_at_once_and_fewer_after_a_while() -> None:
    calm = ScaleDownDelay()
    assert calm.settled(4, 2, BOUNDS, 0.0) == 4
    assert calm.settled(2, 4, BOUNDS, 10.0) == 4
    assert calm.settled(4, 4, BOUNDS, 50.0) == 4  # needed again: the wait begins anew
    assert calm.settled(2, 4, BOUNDS, 60.0) == 4
    assert calm.settled(2, 4, BOUNDS, 119.0) == 4
    assert calm.settled(2, 4, BOUNDS, 120.0) == 2


def test_more_than_there_may_be_go_at_once() -> None:
    assert ScaleDownDelay().settled(2, 7, BOUNDS, 0.0) == 5


def test_the_directory_leaves_out_who_is_silent_and_keeps_the_newest_incarnation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    known = Directory()
    assert known.heartbeat(HostInfo(0, 7, "http://a", 3, "n1")) == HostURLs(("http://a",), complete=False)
    now[0] += 3
    assert known.heartbeat(HostInfo(1, 7, "http://b", 0, "n2")) == HostURLs(
        ("http://a", "http://b"), complete=False
    )
    known.heartbeat(HostInfo(1, 6, "http://old", 0, "n2"))
    assert [each.url for each in known.hosts()] == ["http://a", "http://b"]
    now[0] += 3
    assert known.router_heartbeat("n1", "http://f") == HostURLs(("http://b",), complete=True)
    known.scale(2, 8)
    known.drain("n2")
    assert known.state()[1] == Targets((2, 8), frozenset({"n2"}))
    known.undrain("n2")
    known.forget(1)
    assert known.state() == ([], Targets((2, 8), frozenset()))


def test_a_new_directory_is_given_the_targets_of_the_one_before_it() -> None:
    known = Directory()
    known.drain("n1")
    assert known.state()[1] == Targets(None, frozenset({"n1"}))
    before = Targets((2, 8), frozenset({"n2"}))
    assert known.state(before)[1] == Targets((2, 8), frozenset({"n1", "n2"}))
    known.scale(3, 3)
    known.undrain("n2")
    assert known.state(before)[1] == Targets((3, 3), frozenset({"n1"}))
