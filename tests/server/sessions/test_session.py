"""Sessions, calls and results as state machines: no sockets, and time is an argument."""

import asyncio
import gc
import itertools
from typing import Any

import pytest

from ors._protocol import error_event, task_ids
from ors.errors import BadRequest, Gone, NotFound
from ors.limits import Limits
from ors.server.episodes.author_code import CallOrder
from ors.server.episodes.result import Result
from ors.server.observe.events import Observers
from ors.server.sessions.calls import Call, Calls, NoCall
from ors.server.sessions.kept_results import AT_ONCE, LONG_BYTES, READ_BYTES, RECORD_BYTES
from ors.server.sessions.registry import Sessions
from ors.server.sessions.session import TRANSITIONS, ServerSession, State
from ors.server.sessions.shared import Shared
from tests.requirements import proves
from tests.support.waiting import until

IDS = task_ids()


def runtime(**limits: Any) -> Shared:
    return Shared(Limits(**limits), Observers())


def calls_of(runtime: Shared) -> Calls:
    return Calls(runtime, lambda call, outcome: None)


LEGAL = {
    (State.CREATING, State.READY),
    (State.CREATING, State.FAILED),
    (State.CREATING, State.DELETED),
    (State.READY, State.FAILED),
    (State.READY, State.DELETED),
    (State.FAILED, State.DELETED),
}


@pytest.mark.parametrize(("before", "after"), list(itertools.product(State, State)))
def test_every_pair_of_states(before: State, after: State) -> None:
    session = ServerSession(runtime(), Limits(), "sid", "env", "", 0.0)
    session.state = before
    if (before, after) in LEGAL:
        session._set_state(after)
        assert session.state is after
    else:
        with pytest.raises(
            RuntimeError, match=rf"^a session that is {before.value} cannot become {after.value}$"
        ):
            session._set_state(after)
    assert (after in TRANSITIONS[before]) == ((before, after) in LEGAL)


def test_states_have_the_names_that_metrics_and_pages_show() -> None:
    assert [state.value for state in State] == ["creating", "ready", "failed", "deleted"]


def store(**limits: Any) -> Sessions:
    return Sessions(runtime(**limits))


def reserve(sessions: Sessions, sid: str) -> ServerSession:
    return sessions.reserve(sid, "env", 0.0, sessions.shared.limits)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@proves("expiry.idle", "gone.tombstones")
async def test_idle_sessions_expire_and_their_tombstones_too() -> None:
    sessions = store(idle_seconds=900)
    reserve(sessions, "a")
    sessions.reap(now=900)
    assert sessions.find("a", now=900).sid == "a"
    sessions.reap(now=1800)
    assert len(sessions) == 1
    sessions.reap(now=1801)
    await settle()
    with pytest.raises(Gone):
        sessions.find("a", now=2700)
    sessions.delete("a", now=2700)
    sessions.reap(now=2702)
    with pytest.raises(NotFound):
        sessions.find("a", now=2702)
    with pytest.raises(NotFound):
        sessions.delete("a", now=2702)


@proves("expiry.any-request")
async def test_any_request_with_the_id_counts() -> None:
    sessions = store(idle_seconds=10)
    reserve(sessions, "a")
    sessions.touch("a", now=8)
    sessions.touch("unknown", now=8)
    sessions.reap(now=17)
    assert len(sessions) == 1
    sessions.find("a", now=17)
    sessions.reap(now=26)
    assert len(sessions) == 1
    sessions.reap(now=28)
    assert len(sessions) == 0
    await settle()


@proves("expiry.running-call")
async def test_a_call_in_flight_counts() -> None:
    sessions = store(idle_seconds=10)
    session = reserve(sessions, "a")
    gate = asyncio.Event()

    async def work(name: str, given: dict[str, Any]) -> Result:
        await gate.wait()
        return Result(b"")

    call = session.calls.start(work, "x", {}, "t")
    sessions.reap(now=100)
    assert session.seen == 100
    assert sessions.find("a", now=105)
    gate.set()
    await settle()
    assert call.ending == b""
    sessions.reap(now=call.finished_at + 9)  # its end was activity too
    assert len(sessions) == 1
    sessions.reap(now=call.finished_at + 11)
    assert len(sessions) == 0
    await settle()


@proves("expiry.no-trace")
async def test_unknown_ids_leave_no_trace() -> None:
    sessions = store()
    for n in range(1000):
        with pytest.raises(NotFound):
            sessions.find(f"id-{n}", now=0)
        sessions.touch(f"id-{n}", now=0)
        with pytest.raises(NotFound):
            sessions.delete(f"id-{n}", now=0)
    assert len(sessions) == len(sessions._ended) == 0


@proves("gone.tombstones")
async def test_tombstones_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ors.server.sessions.registry.TOMBSTONES", 10)
    sessions = store()
    for n in range(25):
        reserve(sessions, f"id-{n}")
        sessions.delete(f"id-{n}", now=0)
    with pytest.raises(NotFound):
        sessions.find("id-14", now=0)
    with pytest.raises(Gone):
        sessions.find("id-15", now=0)


async def test_a_taken_id_is_refused_and_a_released_one_is_free() -> None:
    sessions = store()
    session = reserve(sessions, "a")
    with pytest.raises(BadRequest, match="Session already exists"):
        reserve(sessions, "a")
    sessions.release(session)
    with pytest.raises(NotFound):
        sessions.find("a", now=0)


async def finished(calls: Calls, tail: bytes, key: str | None = None) -> Call:
    async def work(name: str, given: dict[str, Any]) -> Result:
        return Result(tail)

    call = calls.start(work, "x", {}, next(IDS), key)
    await settle()
    assert call.ending == tail
    return call


@proves("rejoin.kept", "rejoin.expired", "call.spent-key")
async def test_results_are_kept_for_their_time_then_forgotten_but_for_the_key() -> None:
    shared = runtime(kept_seconds=60, kept_bytes=10**6)
    kept, calls = shared.kept, calls_of(shared)
    call = await finished(calls, b"result", key="k")
    for found in (calls.known(call.id, None), calls.known(None, "k")):
        assert isinstance(found, Call)
        assert (found.id, found.tool, found.ending, found.seconds) == (call.id, "x", b"result", call.seconds)
        assert found.key == "k"
    kept.reap(call.finished_at + 59)
    assert calls.by_id(call.id) is not None
    kept.reap(call.finished_at + 62)
    assert calls.by_id(call.id) is None
    assert isinstance(calls.known(None, "k"), NoCall)
    assert not calls._by_key
    assert calls.spent("k")
    assert not calls.spent("other")
    assert kept.bytes == len(kept) == 0


@proves("call.once")
async def test_each_key_leads_to_its_own_call() -> None:
    calls = calls_of(runtime())
    made = {key: await finished(calls, key.encode(), key) for key in ("a", "b", "c")}
    for key, call in made.items():
        found = calls.known(None, key)
        assert isinstance(found, Call)
        assert (found.id, found.ending) == (call.id, key.encode())


@proves("rejoin.kept-bytes")
async def test_over_the_budget_delivered_results_go_first_oldest_first() -> None:
    shared = runtime(kept_seconds=60, kept_bytes=10_000)
    kept, calls = shared.kept, calls_of(shared)

    def held(*wanted: Call) -> list[bytes | None]:
        return [call.ending if (call := calls.by_id(each.id)) else None for each in wanted]

    gone, one, two = error_event("result no longer kept"), b"x" * 2600, b"y" * 900
    first, second, third = [await finished(calls, one, key) for key in ("a", "b", "c")]
    for taken in (second, third):
        taken.taken()
    fourth = await finished(calls, two)
    assert held(first, second, third, fourth) == [one, gone, one, two]
    assert calls.spent("b")  # and never runs again
    evicted = calls.by_id(second.id)
    assert evicted is not None
    assert (evicted.tool, evicted.seconds, evicted.key) == ("", 0.0, None)
    assert kept.bytes == 2 * 2600 + 900 + 3 * RECORD_BYTES
    fifth = await finished(calls, b"z" * 8500)
    assert held(first, third, fourth, fifth) == [gone, gone, gone, b"z" * 8500]
    assert kept.bytes == 8500 + RECORD_BYTES
    assert kept.awaited
    kept.reap(fifth.finished_at + 62)
    assert kept.bytes == len(kept) == 0
    assert not kept.awaited
    assert held(second, fourth, fifth) == [None, None, None]


async def test_of_many_old_results_some_go_at_once_and_a_session_takes_its_own_along() -> None:
    shared = runtime(kept_seconds=60)
    kept, calls, others = shared.kept, calls_of(shared), calls_of(shared)
    for _ in range(AT_ONCE + 5):
        call = await finished(calls, b"x")
    await finished(others, b"y")
    assert kept.reap(call.finished_at + 62)
    assert len(kept) == 6
    calls.close()
    assert not list(calls)
    assert len(kept) == 1
    assert kept.bytes == 1 + RECORD_BYTES
    assert not kept.reap(call.finished_at + 62)
    assert kept.bytes == len(kept) == 0


async def test_what_was_discarded_goes_with_its_session_too() -> None:
    shared = runtime(kept_bytes=1000)
    calls, made = calls_of(shared), []
    for key in (None, "k", None):
        made.append(await finished(calls, b"x" * 600, key))
        made[-1].taken()
    assert len(shared.kept) == 1
    assert [call.id for call in calls] == [call.id for call in made]
    calls.close()
    assert not shared.kept._latest.evicted
    assert shared.kept.bytes == len(shared.kept) == 0


async def test_nothing_is_left_of_seconds_whose_results_went_with_their_sessions() -> None:
    shared = runtime()
    for second in range(5):
        calls = calls_of(shared)
        call = Call(calls, "x", f"t{second}", None, "")
        call.finished_at = second + 0.5
        assert shared.kept.add(call, calls, b"x") == second
        calls.by_task_id = {call.id: second}
        calls.close()
    assert list(shared.kept._by_second) == [4]
    assert shared.kept.bytes == len(shared.kept) == 0


async def test_a_result_that_is_kept_is_nothing_for_the_collector() -> None:
    shared = runtime()
    calls = calls_of(shared)
    seen = []
    for _ in range(2):
        for _ in range(300):
            await finished(calls, b"x" * 100)
        gc.collect()
        seen.append(len(gc.get_objects()))
    assert len(shared.kept) == 600
    assert seen[1] - seen[0] < 30


async def test_stopping_calls_that_have_not_begun_leaves_nothing_behind() -> None:
    calls = calls_of(runtime())

    async def work(name: str, given: dict[str, Any]) -> Result:
        raise AssertionError("it must not begin")

    call = calls.start(work, "x", {}, "t")
    assert [task.get_name() for task in calls.stop("over", "cancelled")] == ["t"]
    await settle()
    assert call.ending == error_event("over", "cancelled")
    assert calls.running == 0


@pytest.mark.parametrize(
    ("error", "told", "logged"),
    [
        (asyncio.CancelledError(), error_event("Tool call cancelled", "cancelled"), []),
        (KeyError("x"), error_event("Tool execution failed", "environment"), ["call of 'x' failed"]),
    ],
)
async def test_work_that_is_cancelled_or_breaks_still_ends_its_call(
    error: BaseException, told: bytes, logged: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def work(name: str, given: dict[str, Any]) -> Result:
        raise error

    call = calls_of(runtime()).start(work, "x", {}, "t")
    await settle()
    assert (call.ending, caplog.messages) == (told, logged)
    assert {record.name for record in caplog.records} <= {"ors.server"}


class Preparing:
    """An episode that is set up when the test says so, and notes its calls."""

    broken = ""
    needs_teardown = False

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.called: list[str] = []

    def set_up_at_once(self) -> bool:
        return False

    async def setup(self) -> None:
        await self.go.wait()

    async def call(self, name: str, given: dict[str, Any]) -> Result:
        self.called.append(name)
        return Result(b"")


async def test_when_the_only_early_call_has_run_the_next_one_is_not_early() -> None:
    session, episode = reserve(store(), "a"), Preparing()
    session.start(episode)  # type: ignore[arg-type]
    session.submit("early", {}, asyncio.get_running_loop())
    await settle()
    episode.go.set()
    await until(lambda: not session.running)
    assert episode.called == ["early"]
    assert session._early is None


@proves("call.in-order")
async def test_a_call_that_comes_as_the_setup_ends_overtakes_no_earlier_one() -> None:
    session, episode = reserve(store(), "a"), Preparing()
    session.start(episode)  # type: ignore[arg-type]
    for number in range(30):  # one in each turn of the loop, before, while and after the setup ends
        if number == 15:
            episode.go.set()
        session.submit(f"{number:02}", {}, asyncio.get_running_loop())
        await asyncio.sleep(0)
    await until(lambda: not session.running)
    assert episode.called == sorted(episode.called)
    assert len(episode.called) == 30
    assert session._early is None


async def test_turns_come_in_order_and_concurrent_ones_together() -> None:
    turns, log = CallOrder(), []

    async def take(name: str, alone: bool) -> None:
        await turns.enter(alone)
        log.append(f"+{name}")
        await settle()
        log.append(f"-{name}")
        turns.leave()

    order = [("a", True), ("b", False), ("c", False), ("d", True), ("e", False)]
    await asyncio.gather(*(take(name, alone) for name, alone in order))
    assert log == ["+a", "-a", "+b", "+c", "-b", "-c", "+d", "-d", "+e", "-e"]


@proves("call.in-order")
async def test_a_turn_that_is_given_up_holds_nobody_back() -> None:
    turns = CallOrder()
    await turns.enter(False)
    waiting = asyncio.create_task(turns.enter(True))
    behind = asyncio.create_task(turns.enter(False))
    await settle()
    assert not behind.done()
    waiting.cancel()
    await settle()
    assert behind.done()
    turns.leave()
    turns.leave()
    last = asyncio.create_task(turns.enter(True))
    await settle()
    assert last.done()
    cancelled = asyncio.create_task(turns.enter(True))
    await settle()
    turns.leave()  # gives the turn to the task that is cancelled in the same moment
    cancelled.cancel()
    await settle()
    await asyncio.wait_for(turns.enter(True), 1)


@proves("rejoin.kept")
async def test_of_long_results_that_were_read_only_the_last_are_kept() -> None:
    shared, size = runtime(), READ_BYTES // 4
    one_by_one, short = calls_of(shared), calls_of(shared)
    for _ in range(20):
        await finished(short, b"x" * LONG_BYTES)
    read = [await finished(one_by_one, b"x" * size, key=f"key {number}") for number in range(7)]
    gone = [isinstance(one_by_one.known(None, f"key {number}"), NoCall) for number in range(7)]
    assert gone == [True, True, False, False, False, False, False]  # four that were read, and the last one
    assert {known.id for known in one_by_one} == {call.id for call in read}
    assert len(shared.kept) == 20 + 5


async def test_results_of_calls_that_overlap_may_still_be_asked_for() -> None:
    shared = runtime()
    calls = calls_of(shared)
    over = asyncio.Event()

    async def work(name: str, given: dict[str, Any]) -> Result:
        if name == "slow":
            await over.wait()
        return Result(b"x" * READ_BYTES)

    for number in range(3):
        over.clear()
        for name in ("slow", "quick"):
            calls.start(work, name, {}, f"{name} {number}")
        await settle()
        over.set()
        await settle()
    assert all(known.ending == b"x" * READ_BYTES for known in calls)
    assert len(shared.kept) == 6
