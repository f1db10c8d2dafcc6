"""Many sessions and many calls at once, over several servers."""

import shutil

import pytest

from bench import cluster, machine
from tests.support.scale import scaled

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("crowds"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="the load generator is compiled from C"),
]
MOST_KILOBYTES = 40


def test_thousands_of_sessions_over_two_workers_and_hundreds_of_calls_at_once() -> None:
    machine.allow_many_files()
    sessions, calls = scaled(1000, 10_000), scaled(500, 2000)
    found = cluster.crowd(sessions, calls)
    assert found["sessions"] == sessions
    assert found["slow calls"] == calls


def test_an_open_call_takes_little_of_the_router() -> None:
    machine.allow_many_files()
    found = cluster.memory()
    assert found["calls that ended well"] == 2000
    assert found["router, kB an open call"] < MOST_KILOBYTES
