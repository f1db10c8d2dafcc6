"""Streams, written to a sink that records what it is told."""

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any

import pytest

from ors._protocol import PING_COMMENT
from ors.errors import BadRequest
from ors.limits import Limits
from ors.server.episodes.result import Result
from ors.server.http.answers import STREAM, Answer, Headers
from ors.server.http.requests import Request
from ors.server.http.streams import (
    CallStream,
    CallTimers,
    Feed,
    Later,
    Outcome,
    Sink,
    Stream,
    event,
)
from ors.server.observe.events import Observers
from ors.server.sessions.calls import Call, Calls
from ors.server.sessions.shared import Shared

HEAD = b"event: task_id\ndata: 7\n\n"
ENDING = b"done"
TAIL = b"event: end\ndata: done\n\n"


class Recording(Sink):
    """A sink that records what it is told; `there` is whether its reader is."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.changed = asyncio.Event()
        self.there = True

    def answer(self, outcome: Outcome) -> None:
        self.told.append(("answer", outcome))

    def whole(self, status: int, headers: Headers, body: bytes) -> bool:
        assert (status, headers) == (200, STREAM)
        self.told.append(("whole", body))
        return self.there

    def head(self, status: int, headers: Headers, body: bytes = b"") -> None:
        assert (status, headers) == (200, STREAM)
        self.told.append(("head", body))
        self.changed.set()

    def part(self, data: bytes) -> None:
        self.told.append(("part", data))
        self.changed.set()

    def end(self, data: bytes) -> bool:
        self.told.append(("end", data))
        return self.there

    def abort(self) -> None:
        self.told.append(("abort",))


class Turn:
    """One call with its stream, its sink and its timers."""

    def __init__(self) -> None:
        self.kept = (shared := Shared(Limits(), Observers())).kept
        self.call = Call(Calls(shared, lambda call, result: None), "tool", "7", None, "")
        self.timers = CallTimers(0.001)
        self.timers.start(asyncio.get_running_loop())
        self.sink = Recording()
        self.stream = CallStream(self.call, self.timers)

    def finish(self) -> None:
        self.call.finish(Result(ENDING, "ok", ""))

    async def told(self, count: int) -> list[tuple[Any, ...]]:
        """Waits for so many messages to the sink."""
        async with asyncio.timeout(20):
            while len(self.sink.told) < count:
                self.sink.changed.clear()
                await self.sink.changed.wait()
        return self.sink.told[:count]


@pytest.fixture
async def turn() -> Turn:
    return Turn()


async def test_a_call_that_is_soon_done_is_answered_in_one_write(turn: Turn) -> None:
    turn.stream.begin(turn.sink)
    assert turn.sink.told == []
    turn.finish()
    turn.stream.open()  # what its timers would do, had they not been stopped
    turn.stream.ping()
    assert turn.sink.told == [("whole", HEAD + TAIL)]
    assert not turn.kept.awaited
    assert not turn.timers.opening._due


async def test_a_call_that_takes_its_time_opens_pings_and_ends(turn: Turn) -> None:
    turn.stream.begin(turn.sink)
    assert await turn.told(3) == [("head", HEAD), ("part", PING_COMMENT), ("part", PING_COMMENT)]
    turn.finish()
    assert turn.sink.told[-1] == ("end", TAIL)
    assert not turn.timers.pings._due


async def test_a_call_that_was_done_before_is_answered_and_noted(turn: Turn) -> None:
    turn.finish()
    assert turn.kept.awaited
    turn.stream.begin(turn.sink)
    assert turn.sink.told == [("whole", HEAD + TAIL)]
    assert not turn.kept.awaited


@pytest.mark.parametrize("when", ["before", "at once", "opened"])
async def test_a_result_that_does_not_reach_its_reader_is_kept(turn: Turn, when: str) -> None:
    turn.sink.there = False
    if when == "before":
        turn.finish()
    turn.stream.begin(turn.sink)
    if when == "opened":
        await turn.told(1)
    turn.finish()
    assert turn.kept.awaited


async def test_a_paused_call_sends_no_pings_and_its_result_all_the_same(turn: Turn) -> None:
    turn.stream.pause()
    turn.stream.begin(turn.sink)
    await turn.told(1)
    turn.stream.ping()
    assert turn.sink.told == [("head", HEAD)]
    turn.stream.resume()
    turn.stream.ping()
    assert turn.sink.told == [("head", HEAD), ("part", PING_COMMENT)]
    turn.stream.pause()
    turn.finish()
    assert turn.sink.told[-1] == ("end", TAIL)


@pytest.mark.parametrize("opened", [False, True])
async def test_a_call_whose_reader_leaves_writes_no_more_and_goes_on(turn: Turn, opened: bool) -> None:
    turn.stream.begin(turn.sink)
    if opened:
        await turn.told(1)
    turn.stream.leave()
    before = list(turn.sink.told)
    assert turn.call.listener is None
    assert not turn.timers.opening._due
    assert not turn.timers.pings._due
    turn.stream.open()
    turn.stream.ping()
    turn.finish()
    assert turn.sink.told == before
    assert turn.call.ending == ENDING


async def test_a_call_is_not_stopped_with_its_server(turn: Turn) -> None:
    turn.stream.begin(turn.sink)
    turn.stream.stop()
    turn.finish()
    assert turn.sink.told == [("whole", HEAD + TAIL)]


async def test_two_readers_of_one_call_both_get_its_result(turn: Turn) -> None:
    other = Recording()
    turn.stream.begin(turn.sink)
    CallStream(turn.call, turn.timers).begin(other)
    turn.finish()
    assert turn.sink.told == other.told == [("whole", HEAD + TAIL)]


def feed() -> tuple[Feed, Recording, list[str]]:
    noted: list[str] = []
    return Feed(lambda feed: noted.append("open"), lambda feed: noted.append("close")), Recording(), noted


def test_a_feed_sends_events_in_their_order_between_head_and_end() -> None:
    stream, sink, noted = feed()
    stream.tell(b"too early")
    stream.begin(sink)
    stream.tell(b"one")
    stream.tell(b"two")
    stream.stop()
    stream.tell(b"too late")
    stream.leave()
    assert sink.told == [("head", b""), ("part", b"one"), ("part", b"two"), ("end", b"")]
    assert noted == ["open", "close"]


def test_a_feed_whose_reader_is_slow_says_how_many_events_it_missed() -> None:
    stream, sink, _ = feed()
    stream.begin(sink)
    stream.pause()
    stream.tell(b"one")
    stream.tell(b"two")
    stream.resume()
    stream.tell(b"three")
    stream.tell(b"four")
    assert sink.told[1:] == [("part", event("missed", 2) + b"three"), ("part", b"four")]


def test_a_feed_whose_reader_leaves_closes_once_and_sends_nothing() -> None:
    stream, sink, noted = feed()
    stream.begin(sink)
    stream.leave()
    stream.leave()
    stream.stop()
    stream.tell(b"late")
    assert sink.told == [("head", b"")]
    assert noted == ["open", "close"]


def test_an_event_is_one_line_of_json() -> None:
    assert event("load", {"text": "a\nb"}) == b'event: load\ndata: {"text":"a\\nb"}\n\n'


class Begun(Stream):
    """Records whether it was begun or left."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def begin(self, sink: Any) -> None:
        self.told.append("begin")

    def leave(self) -> None:
        self.told.append("leave")


def later(coming: Coroutine[Any, Any, Outcome]) -> tuple[Later, Request, set[asyncio.Task[None]]]:
    request, tasks = Request("GET", "/later", b"", {}, b""), set[asyncio.Task[None]]()
    return Later(request, coming, tasks), request, tasks


async def outcome(given: Outcome | BaseException, gate: asyncio.Event | None = None) -> Outcome:
    if gate is not None:
        await gate.wait()
    if isinstance(given, BaseException):
        raise given
    return given


@pytest.mark.parametrize(
    ("given", "status", "logged"),
    [
        (Answer(204, b""), 204, False),
        (BadRequest("no"), 400, False),
        (RuntimeError("a bug"), 500, True),
        (asyncio.CancelledError(), 500, False),
    ],
    ids=["an answer", "a refusal", "a bug", "cancelled from within"],
)
async def test_a_later_outcome_is_answered_whatever_it_is(
    given: Any, status: int, logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    stream, _, tasks = later(outcome(given))
    sink = Recording()
    stream.begin(sink)
    assert sink.told == []
    await asyncio.wait(tasks)
    [(_, answer)] = sink.told
    assert answer.status == status
    assert ("GET /later failed" in caplog.text) is logged
    await asyncio.sleep(0)
    assert tasks == set()


@pytest.mark.parametrize("waiting", [False, True])
async def test_a_reader_that_leaves_ends_only_what_waits_in_line(waiting: bool) -> None:
    gate, made = asyncio.Event(), Begun()
    stream, request, tasks = later(outcome(made, gate))
    request.waiting = waiting
    sink = Recording()
    stream.begin(sink)
    await asyncio.sleep(0)
    [task] = tasks
    stream.leave()
    gate.set()
    await asyncio.wait({task})
    assert sink.told == []
    assert task.cancelled() is waiting
    assert made.told == ([] if waiting else ["leave"])


async def test_a_reader_that_leaves_what_waits_in_line_at_once_ends_it_before_it_runs() -> None:
    coming = outcome(Begun())
    stream, request, tasks = later(coming)
    request.waiting = True
    stream.begin(Recording())
    [task] = tasks
    stream.leave()
    await asyncio.wait({task})
    assert task.cancelled()
    assert inspect.getcoroutinestate(coming) == inspect.CORO_CLOSED


async def test_a_later_outcome_that_nobody_begins_never_runs() -> None:
    ran: list[str] = []

    async def coming() -> Outcome:
        ran.append("ran")
        return Answer(200, b"")

    stream, _, tasks = later(coming())
    stream.leave()
    assert (tasks, ran) == (set(), [])
