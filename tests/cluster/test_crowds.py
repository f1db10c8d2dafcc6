"""Many sessions and many calls at once, over several servers."""

import shutil

import pytest

from bench import cluster, machine

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("workers"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="the load generator is compiled from C"),
]
MOST_KILOBYTES = 40


def test_ten_thousand_sessions_over_two_workers_and_two_thousand_calls_at_once() -> None:
    machine.allow_many_files()
    found = cluster.crowd()
    assert found["sessions"] == 10_000
    assert found["slow calls"] == 2000


def test_an_open_call_takes_little_of_the_router() -> None:
    machine.allow_many_files()
    found = cluster.memory()
    assert found["calls that ended well"] == 2000
    assert found["router, kB an open call"] < MOST_KILOBYTES
