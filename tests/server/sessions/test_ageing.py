"""What a server remembers of the sessions and calls that are over: by whose key, how long, at what price."""

import re
import tracemalloc
from pathlib import Path

import pytest

import ors
from ors.errors import Gone, NotFound
from ors.server.sessions.calls import SPENT_KEYS
from tests.requirements import proves
from tests.server.sessions.test_session import calls_of, reserve, runtime, store


@proves("sessions.after-end", "sessions.key")
async def test_a_tombstone_is_of_its_key() -> None:
    sessions = store(tombstone_seconds=900)
    assert sessions.admission.enter("env", "one")
    sessions.reserve("a", "env", 0.0, sessions._limits, "one")
    with pytest.raises(NotFound):
        sessions.delete("a", now=1, key="two")
    sessions.delete("a", now=1, key="one")
    for look in (sessions.find, sessions.peek):
        with pytest.raises(Gone):
            look("a", 2, "one")
        with pytest.raises(NotFound):
            look("a", 2, "two")
    with pytest.raises(NotFound):
        sessions.delete("a", now=2, key="two")
    sessions.delete("a", now=2, key="one")
    assert sessions.admission.enter("env", "two")
    assert sessions.reserve("a", "env", 3.0, sessions._limits, "two").key == "two"
    with pytest.raises(NotFound):
        sessions.find("a", 4, "one")


async def test_a_reap_does_not_touch_the_tombstones_that_last() -> None:
    sessions = store(tombstone_seconds=900, tombstones=20_000)
    for n in range(25_000):
        reserve(sessions, str(n))
        sessions.delete(str(n), now=n / 100)
    assert len(sessions._ended) == 20_000
    tracemalloc.start()
    try:
        sessions.reap(now=900)
        assert tracemalloc.get_traced_memory()[1] < 20_000
    finally:
        tracemalloc.stop()
    sessions.reap(now=900 + 200)
    assert len(sessions._ended) == 4_999


def test_nothing_is_taken_from_the_front_of_a_plain_dict() -> None:
    # That takes ever longer, the more were taken before: 70 µs with 100,000 in it, against 0.7.
    source = Path(ors.__file__).parent
    found = [path for path in source.rglob("*.py") if re.search(r"del .*\[next\(iter\(", path.read_text())]
    assert found == []


@proves("calls.once")
async def test_a_spent_key_is_remembered_for_as_many_further_ones_as_is_promised() -> None:
    calls = calls_of(runtime())
    for n in range(3 * SPENT_KEYS):
        calls.spend(f"k{n}")
        if n % 8192 == 0:
            assert calls.spent(f"k{max(0, n - SPENT_KEYS)}")
    assert all(calls.spent(f"k{n}") for n in range(2 * SPENT_KEYS, 3 * SPENT_KEYS))


async def test_spent_keys_are_bounded_in_number() -> None:
    calls = calls_of(runtime())
    for n in range(2 * SPENT_KEYS + 1):
        calls.spend(f"k{n}")
    assert not calls.spent("k0")
    assert not calls.spent(f"k{SPENT_KEYS - 1}")
    assert calls.spent(f"k{SPENT_KEYS}")
