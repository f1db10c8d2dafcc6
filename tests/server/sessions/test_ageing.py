"""What a server remembers of the sessions and calls that are over: by whose key, how long, at what price."""

import asyncio
import re
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

import ors
from ors.errors import Gone, NotFound
from ors.server.episodes.result import Result
from ors.server.sessions import registry
from ors.server.sessions.calls import SPENT_KEYS
from tests.requirements import proves
from tests.server.sessions.test_session import calls_of, reserve, runtime, settle, store


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


@proves("sessions.expiry")
async def test_a_session_lives_as_long_as_it_may_from_its_creation_however_much_it_is_used() -> None:
    sessions = store(life_seconds=100, idle_seconds=900)
    assert sessions.admission.enter("env", "")
    sessions.reserve("a", "env", 50.0, sessions._limits)
    sessions.reap(now=150)
    assert sessions.find("a", now=150).sid == "a"
    sessions.reap(now=150.1)
    with pytest.raises(Gone) as ended:
        sessions.find("a", now=150.1)
    assert ended.value.reason == "life"


async def test_a_drain_goes_on_as_soon_as_the_last_call_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "COMING_BACK_SECONDS", 1000)
    sessions, gate = store(), asyncio.Event()

    async def work(name: str, given: dict[str, Any]) -> Result:
        await gate.wait()
        return Result(b"")

    for sid in ("a", "b"):
        call = reserve(sessions, sid)._calls.start(work, "x", {}, sid)
        call.listen(call.taken)
    reserve(sessions, "without any call")
    draining = asyncio.create_task(sessions.drain())
    await settle()
    assert not draining.done()
    gate.set()
    async with asyncio.timeout(20):
        await draining


async def test_a_drain_waits_for_a_client_that_has_to_come_back_for_its_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "COMING_BACK_SECONDS", 0)
    sessions = store()

    async def work(name: str, given: dict[str, Any]) -> Result:
        return Result(b"")

    call = reserve(sessions, "a")._calls.start(work, "x", {}, "t")
    await settle()
    assert call.tail == b""
    draining = asyncio.create_task(sessions.drain())
    await settle()
    assert not draining.done()
    call.taken()
    async with asyncio.timeout(20):
        await draining


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
