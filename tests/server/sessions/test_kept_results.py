"""Kept results, and the listeners of a call, without a server."""

import asyncio
import resource
import weakref
from contextlib import suppress
from pathlib import Path

import pytest

from ors import Server
from ors.client import ORS, Options, Task
from ors.errors import ToolCallError
from ors.limits import Limits
from ors.server.episodes.result import Result
from ors.server.observe.events import Observers
from ors.server.sessions import kept_results
from ors.server.sessions.calls import Call, Calls
from ors.server.sessions.kept_results import RECORD_BYTES, KeptResults
from ors.server.sessions.shared import Shared
from tests.support.environments import Lab
from tests.support.live_server import serving


class Owner(Calls):
    def __init__(self) -> None:
        super().__init__(Shared(Limits(), Observers()), lambda call, result: None)
        self.keys: list[str] = []
        self.forgotten: list[str] = []

    def spend(self, key: str) -> None:
        self.keys.append(key)

    def forget(self, id: str, key: str | None) -> None:
        self.forgotten.append(id)


def finished(id: str, finished_at: float = 0.0, key: str | None = None, awaited: bool = False) -> Call:
    call = Call(Owner(), "tool", id, key, "")
    call.finished_at, call.seconds = finished_at, 0.5
    call.listener = None if awaited else print
    return call


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.untraced
@pytest.mark.parametrize("tool", ["nothing", "no such tool"])
def test_a_kept_result_takes_little_more_memory_than_its_bytes(tool: str) -> None:
    """As orjson makes them, they would take 5 KB each."""
    lab, options = Server([Lab], inspector=False), Options(keep_messages=False)
    with (
        serving(lab) as url,
        ORS(url, options=options) as client,
        client.environment("lab").session(Task("lab", {})) as session,
    ):

        def call(count: int) -> int:
            for _ in range(count):
                with suppress(ToolCallError):
                    session.call_tool(tool, {})
            return resident_bytes()

        before = call(500)
        assert (call(4000) - before) / 4000 < 2048


def test_over_budget_the_oldest_delivered_results_are_evicted_first() -> None:
    owner, kept = Owner(), KeptResults(60, 3 * (RECORD_BYTES + 100) + 10)
    kept.add(finished("missed", awaited=True), owner, bytes(100))
    seconds = [kept.add(finished(id, key=f"key of {id}"), owner, bytes(100)) for id in ("a", "b")]
    assert not owner.keys
    kept.add(finished("c"), owner, bytes(100))
    assert owner.keys == ["key of a"]
    assert kept.get("a", seconds[0]) is None
    assert kept.get("b", seconds[1]) == (bytes(100), "tool", 0.5, "key of b")
    assert (len(kept), kept.bytes) == (3, 3 * (RECORD_BYTES + 100))


def test_a_result_that_comes_after_its_session_has_ended_expires_alone() -> None:
    owner, kept = Owner(), KeptResults(60, RECORD_BYTES + 100)
    kept.add(finished("a"), owner, bytes(100))
    kept.leave(owner)
    for id in ("b", "c"):
        kept.add(finished(id, key=f"key of {id}"), owner, bytes(100))
    assert not kept.reap(61)
    assert (owner.keys, owner.forgotten) == ([], [])
    assert (len(kept), kept.bytes) == (0, 0)


def test_what_has_expired_is_forgotten_once_evicted_results_too() -> None:
    owner, kept = Owner(), KeptResults(60, RECORD_BYTES + 100)
    for id in ("a", "b"):
        kept.add(finished(id), owner, bytes(100))
    assert not kept.reap(60.9)
    assert not owner.forgotten
    assert not owner.keys  # they had no keys
    assert not kept.reap(61)
    assert sorted(owner.forgotten) == ["a", "b"]
    kept.reap(1000)
    assert len(owner.forgotten) == 2
    assert (len(kept), kept.bytes, kept._by_second) == (0, 0, {})


def test_kept_and_evicted_results_share_what_is_removed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_results, "AT_ONCE", 3)
    owner, kept = Owner(), KeptResults(60, 2 * (RECORD_BYTES + 100))
    for number in range(6):
        kept.add(finished(str(number)), owner, bytes(100))
    assert len(kept) == 2
    more = []
    for forgotten in (3, 6, 6):
        more.append(kept.reap(61))
        assert len(owner.forgotten) == forgotten
    assert more == [True, True, False]


def test_an_empty_second_is_dropped_with_its_last_result() -> None:
    owner, kept = Owner(), KeptResults(60, 10**6)
    first = kept.add(finished("a"), owner, b"")
    second = kept.add(finished("b", finished_at=1.0), owner, b"")
    kept.add(finished("c", finished_at=1.5), owner, b"")
    kept.remove("a", first)
    assert list(kept._by_second) == [second]
    kept.remove("a", first)  # again
    kept.remove("a", second)  # which never had it
    assert (kept.get("a", first), kept.get("a", second), len(kept)) == (None, None, 2)


def test_of_two_results_of_an_old_second_one_stays_when_the_other_goes() -> None:
    owner, kept = Owner(), KeptResults(60, 10**6)
    old = [kept.add(finished(id), owner, id.encode()) for id in ("a", "b")]
    kept.add(finished("c", finished_at=1.0), owner, b"")
    kept.remove("a", old[0])
    found = kept.get("b", old[1])
    assert found is not None
    assert (found.ending, len(kept)) == (b"b", 2)


def test_a_result_over_the_whole_budget_is_kept_until_it_is_delivered() -> None:
    owner, kept = Owner(), KeptResults(60, 500)
    second = kept.add(finished("large"), owner, bytes(1000))
    assert kept.get("large", second) is not None
    kept.add(finished("next"), owner, b"")
    assert kept.get("large", second) is None


def test_one_byte_over_the_budget_is_too_much() -> None:
    owner, budget = Owner(), 1_000_000
    for over in (0, 1):
        kept = KeptResults(60, budget)
        kept.add(finished("a"), owner, bytes(1000))
        kept.add(finished("b"), owner, bytes(budget - 1000 - 2 * RECORD_BYTES + over))
        assert len(kept) == 2 - over
        assert kept.bytes <= budget


async def test_every_listener_but_a_removed_one_hears_of_the_end() -> None:
    runtime = Shared(Limits(), Observers())
    runtime.running = 3
    calls, heard = Calls(runtime, lambda call, result: None), list[str]()
    listeners = [lambda name=name: heard.append(name) for name in ("a", "b", "c")]
    for removed, left in ((0, ["b", "c"]), (1, ["a", "c"]), (2, ["a", "b"])):
        heard.clear()
        call = Call(calls, "tool", f"id{removed}", None, "")
        for listener in listeners:
            call.listen(listener)
        call.unlisten(listeners[removed])
        assert 0 <= call.age < 60
        call.finish(Result(b"end"))
        call.finish(Result(b"a second end"))
        assert (heard, call.ending, call.age) == (left, b"end", call.seconds)
        assert 0 <= call.seconds < 60
        call.unlisten(listeners[0])  # too late, and no error: a client may leave as the call ends


async def test_a_call_that_has_ended_lets_go_of_those_who_listened() -> None:
    class Reader:
        def heard(self) -> None: ...

    runtime = Shared(Limits(), Observers())
    call = Call(Calls(runtime, lambda call, result: None), "tool", "id", None, "")
    readers = [Reader(), Reader()]
    for reader in readers:
        call.listen(reader.heard)
    call.finish(Result(b"end"))
    left = [weakref.ref(reader) for reader in readers]
    del reader, readers
    assert [one() for one in left] == [None, None]


async def test_a_call_ends_at_the_time_of_its_loop() -> None:
    runtime = Shared(Limits(), Observers())
    call = Call(Calls(runtime, lambda call, result: None), "tool", "id", None, "")
    time = asyncio.get_running_loop().time
    before = time()
    call.finish(Result(b"end"))
    assert before <= call.finished_at <= time()


async def test_a_result_that_did_not_reach_its_client_is_awaited_until_it_is_fetched() -> None:
    runtime = Shared(Limits(), Observers())
    calls = Calls(runtime, lambda call, result: None)
    call = Call(calls, "tool", "id", None, "")
    call.listen(lambda: None)
    call.finish(Result(b"end"))
    assert not runtime.kept.awaited
    call.missed()
    assert runtime.kept.awaited
    found = calls.by_id("id")
    assert found is not None
    found.taken()
    assert not runtime.kept.awaited
