"""What observers and watchers are told of a session, and what its end depends on, without a server."""

import asyncio
import logging
from typing import Any, ClassVar
from unittest.mock import ANY

import pytest

from ors._protocol import error_event
from ors.errors import Gone, NotFound, ServerFailed, Unavailable
from ors.limits import Limits
from ors.server.episodes.result import Result, failed
from ors.server.episodes.threads import NoThread
from ors.server.observe.counters import EpisodeTotals
from ors.server.observe.events import (
    CallEnded,
    CallFinished,
    CallReplayed,
    CallStarted,
    EpisodeEnded,
    EpisodeForked,
    Observers,
    PromptAsked,
    SessionClosed,
    SessionEnded,
    SessionOpened,
    SessionReady,
    ToolsListed,
)
from ors.server.sessions.calls import Call
from ors.server.sessions.registry import Sessions
from ors.server.sessions.session import ServerSession, State
from ors.server.sessions.shared import Shared
from ors.types import ListToolsOutput, RewardSpec
from tests.server.sessions.test_session import settle

SCORED = Result(b"1", reward=0.5, finished=True)


class Seen:
    def __init__(self) -> None:
        self.events: list[Any] = []

    def observe(self, event: Any) -> None:
        self.events.append(event)

    show = observe


class Acting:
    """An episode that does what the test says."""

    task: ClassVar[dict[str, Any]] = {"id": 1}
    rewards = RewardSpec()
    broken, broken_by = "", "tool_timeout"

    def __init__(self, result: Result = SCORED, setup: BaseException | None = None) -> None:
        self.result = result
        self.error = setup
        self.at_once = setup is None
        self.swallows = self.needs_teardown = False
        self.go, self.torn = asyncio.Event(), asyncio.Event()
        self.done: list[str] = []

    def set_up_at_once(self) -> bool:
        return self.at_once

    async def setup(self) -> None:
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            if not self.swallows:
                raise
        if self.error is not None:
            raise self.error

    def setup_failed(self, error: BaseException) -> str:
        self.done.append("logged")
        return f"it failed: {error}"

    async def teardown(self) -> None:
        await self.torn.wait()
        self.done.append("torn down")

    async def prompt(self) -> Any:
        if self.error is not None:
            raise self.error
        return ["prompt"]

    async def tools(self) -> ListToolsOutput:
        return ListToolsOutput(tools=[])

    async def call(self, name: str, given: dict[str, Any]) -> Result:
        self.done.append(name)
        return self.result

    async def fork(self, count: int) -> list[Any]:
        self.done.append(f"fork {count}")
        return [Acting() for _ in range(count)]


def sessions_of(*observers: Any, **limits: Any) -> Sessions:
    return Sessions(Shared(Limits(**limits), Observers(observers)))


def reserve(sessions: Sessions, age: float = 0) -> ServerSession:
    now = asyncio.get_running_loop().time()
    return sessions.reserve("a", "env", now - age, sessions.shared.limits, "key")


def opened(sessions: Sessions, episode: Acting, trace: str = "", age: float = 0) -> ServerSession:
    session = reserve(sessions, age)
    session.start(episode, trace)  # type: ignore[arg-type]
    return session


async def called(session: ServerSession, **known: Any) -> Call:
    call = session.submit("tool", {"x": 1}, asyncio.get_running_loop(), **known)
    await settle()
    assert isinstance(call, Call)
    return call


# ── Told ─────────────────────────────────────────────────────────────────────────────────────────


async def test_observers_are_told_the_whole_life_of_a_session() -> None:
    seen = Seen()
    sessions = sessions_of(seen)
    session = opened(sessions, Acting(), "of the session", age=1000)
    session.place = ("train", 2)
    call = await called(session, trace="of the call")
    await called(session, task_id=call.id)
    sessions.shared.prompts.keep("a", b"prompt")
    sessions.delete("a", now=0, key="key")
    assert (len(sessions.shared.kept), sessions.shared.prompts.get("a")) == (0, None)
    ready, closed = (event for event in seen.events if isinstance(event, SessionReady | SessionClosed))
    bytes, task = len(SCORED.ending), Acting.task
    assert seen.events == [
        SessionOpened("a", "env", "key", "of the session"),
        SessionReady("a", "env", ANY, ""),
        CallFinished(
            "a", "env", "tool", call.id, "ok", "", call.seconds, bytes, 0.5, True, trace="of the call"
        ),
        EpisodeEnded("a", "env", "key", "scored", 0.5, 1, session.created, task),
        CallReplayed("a", "env", call.id),
        SessionClosed("a", "env", "key", "deleted", ANY, 0.0, "scored", 0.5, 1, ("train", 2), task),
    ]
    assert all(1000 <= event.seconds < 1060 for event in (ready, closed))


async def test_watchers_of_a_session_see_all_that_happens_in_it() -> None:
    watcher, sessions = Seen(), sessions_of()
    sessions.shared.observers.watch("a", watcher)
    session = opened(sessions, Acting())
    await session.prompt()
    await session.tools()
    call = await called(session)
    sessions.delete("a", now=0, key="key")
    assert watcher.events == [
        PromptAsked("a", ["prompt"]),  # type: ignore[list-item]
        ToolsListed("a", []),
        CallStarted("a", "tool", call.id, {"x": 1}),
        CallEnded("a", "tool", call.id, call.seconds, SCORED.ending),
        SessionEnded("a", "deleted", "Session deleted", True),
    ]


async def test_recorders_see_a_session_from_its_start_to_its_end() -> None:
    class Recording(Seen):
        def log(self, events: bytes) -> None: ...

        def counts(self) -> tuple[int, int]:
            return 0, 0

    recorder = Recording()
    sessions = sessions_of(recorder)
    reserve(sessions).start(Acting(), "", EpisodeForked("a", "first"))  # type: ignore[arg-type]
    sessions.delete("a", now=0, key="key")
    assert recorder.events == [
        EpisodeForked("a", "first"),
        SessionEnded("a", "deleted", "Session deleted", True),
    ]


async def test_of_a_session_that_was_never_started_nobody_is_told() -> None:
    seen, watcher = Seen(), Seen()
    sessions = sessions_of(seen)
    sessions.shared.observers.watch("a", watcher)
    reserve(sessions)
    sessions.delete("a", now=0, key="key")
    assert (seen.events, watcher.events) == ([], [])


async def test_a_session_that_was_given_no_trace_has_none() -> None:
    seen = Seen()
    sessions = sessions_of(seen)
    session = reserve(sessions)
    session.start(Acting())  # type: ignore[arg-type]
    await called(session)
    await sessions.fork(session, 1).sids()
    traces = [event.trace for event in seen.events if isinstance(event, SessionOpened | CallFinished)]
    assert traces == ["", "", ""]


async def test_watchers_see_that_a_prompt_and_a_setup_failed() -> None:
    watcher, sessions = Seen(), sessions_of()
    sessions.shared.observers.watch("a", watcher)
    episode = Acting()
    session = opened(sessions, episode)
    episode.error = ServerFailed("no prompt", reason="environment")
    with pytest.raises(ServerFailed):
        await session.prompt()
    sessions.delete("a", now=0, key="key")
    broken = Acting(setup=ValueError("x"))
    session = opened(sessions, broken)
    broken.go.set()
    broken.torn.set()
    await settle()
    sessions.delete("a", now=0, key="key")
    assert watcher.events == [
        PromptAsked("a", [], "no prompt"),
        SessionEnded("a", "deleted", "Session deleted", True),
        SessionEnded("a", "deleted", "Session deleted", False, "it failed: x", "environment"),
    ]


@pytest.mark.parametrize(
    ("result", "level", "told"),
    [
        (SCORED, logging.INFO, 0),
        (SCORED, logging.DEBUG, 1),
        (failed("no", "tool"), logging.INFO, 1),
        (Result(b"", "refused"), logging.INFO, 1),
    ],
)
async def test_without_observers_only_the_log_asks_for_calls_that_went_well(
    result: Result, level: int, told: int, caplog: pytest.LogCaptureFixture
) -> None:
    own, sessions = Seen(), sessions_of()
    sessions.shared.observers.subscribe(own.observe, [CallFinished])
    with caplog.at_level(level, "ors.server"):
        await called(opened(sessions, Acting(result)))
    assert len(own.events) == told


# ── Outcomes ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("result", "reason", "outcome"),
    [
        (None, "deleted", "unscored"),
        (None, "shutdown", "failed"),
        (Result(b"", reward=0.5), "deleted", "scored"),
        (Result(b"", reward=0.5), "expired", "failed"),
        (failed("no", "tool"), "deleted", "failed"),
        (Result(b"", reward=0.5, finished=True), "shutdown", "scored"),
        (Result(b"", finished=True), "deleted", "unscored"),
    ],
)
async def test_an_episode_that_was_cut_short_has_failed(
    result: Result | None, reason: str, outcome: str
) -> None:
    seen = Seen()
    sessions = sessions_of(seen)
    session = opened(sessions, Acting(result or SCORED))
    if result is not None:
        await called(session)
    session.end("over", reason)
    (ended,) = (event for event in seen.events if isinstance(event, EpisodeEnded))
    assert ended.outcome == outcome
    assert ended.reward == (0.5 if outcome == "scored" else None)
    assert {each for each, count in sessions.shared.episodes.outcomes.items() if count} == {("env", outcome)}


async def test_an_episode_that_is_deleted_before_it_is_set_up_has_failed() -> None:
    seen, episode = Seen(), Acting()
    episode.at_once = False
    sessions = sessions_of(seen)
    opened(sessions, episode)
    episode.torn.set()
    ending = sessions.delete("a", now=0, key="key")
    assert ending is not None
    await ending
    assert [event.outcome for event in seen.events if isinstance(event, EpisodeEnded)] == ["failed"]


@pytest.mark.parametrize(("calls", "outcome"), [(0, "failed"), (1, "scored")])
async def test_a_prompt_that_fails_before_the_first_call_fails_the_episode(calls: int, outcome: str) -> None:
    seen, episode = Seen(), Acting(Result(b"", reward=0.5))
    session = opened(sessions_of(seen), episode)
    for _ in range(calls):
        await called(session)
    episode.error = ServerFailed("no prompt")
    with pytest.raises(ServerFailed):
        await session.prompt()
    session.end("over", "deleted")
    assert [event.outcome for event in seen.events if isinstance(event, EpisodeEnded)] == [outcome]


async def test_a_tool_that_keeps_its_thread_fails_its_session() -> None:
    episode = Acting(failed("too long", "tool_timeout"))
    session = opened(sessions_of(), episode)
    await called(session)
    assert session.state is State.READY  # a tool without a thread can be stopped
    episode.broken = "its thread hangs"
    await called(session)
    with pytest.raises(ServerFailed, match=r"^its thread hangs$") as caught:
        session.check()
    assert (session.state, caught.value.reason) == (State.FAILED, "tool_timeout")
    session.end("over", "deleted")
    with pytest.raises(Gone, match=r"^over$"):
        session.check()


async def test_an_episode_that_is_finished_twice_counts_once() -> None:
    seen = Seen()
    sessions = sessions_of(seen)
    session = opened(sessions, Acting())
    for _ in range(2):
        await called(session)
    session.end("over", "deleted")
    assert len([event for event in seen.events if isinstance(event, EpisodeEnded)]) == 1
    assert sessions.shared.episodes.totals() == {"env": EpisodeTotals(ended=1, scored=1, reward=0.5)}


# ── Teardown ─────────────────────────────────────────────────────────────────────────────────────


class CleaningUp(Acting):
    """An episode whose calls clean up when they are stopped, until the test says that they are done."""

    async def call(self, name: str, given: dict[str, Any]) -> Result:
        try:
            return await asyncio.Future()
        finally:
            await self.go.wait()
            self.done.append("cleaned up")


async def test_the_teardown_comes_after_what_stopped_calls_clean_up() -> None:
    seen, episode = Seen(), CleaningUp()
    episode.needs_teardown = True
    episode.torn.set()
    sessions = sessions_of(seen)
    session = opened(sessions, episode)
    await called(session)
    ending = sessions.delete("a", now=0, key="key")
    assert ending is not None
    await settle()
    assert episode.done == []
    assert not any(isinstance(event, SessionClosed) for event in seen.events)
    episode.go.set()
    await ending
    assert episode.done == ["cleaned up", "torn down"]
    (closed,) = (event for event in seen.events if isinstance(event, SessionClosed))
    assert (closed.reason, list(session.calls)) == ("deleted", [])
    assert 0 <= closed.teardown_seconds < 60


async def test_the_teardown_does_not_wait_for_ever_for_a_call_that_does_not_stop() -> None:
    episode = CleaningUp()
    episode.needs_teardown = True
    episode.torn.set()
    sessions = sessions_of(teardown_seconds=0.01)
    session = opened(sessions, episode)
    await called(session)
    ending = sessions.delete("a", now=0, key="key")
    assert ending is not None
    await asyncio.wait_for(ending, 20)
    assert episode.done == ["torn down"]
    episode.go.set()
    await settle()


# ── Setup ────────────────────────────────────────────────────────────────────────────────────────


async def test_a_session_that_was_never_started_is_not_found() -> None:
    with pytest.raises(NotFound, match=r"^Session not found$"):
        await reserve(sessions_of()).ready()


async def test_a_session_that_ends_while_its_task_is_asked_for_is_gone() -> None:
    sessions = sessions_of()
    session = reserve(sessions)
    asking = asyncio.create_task(session.task(asyncio.sleep(1000, {})))
    await settle()
    ending = sessions.delete("a", now=0, key="key")
    with pytest.raises(Gone, match=r"^Session deleted$"):
        await asking
    assert ending is not None
    await ending
    with pytest.raises(Gone, match=r"^Session deleted$"):
        session.start(Acting())  # type: ignore[arg-type]


async def test_a_request_that_leaves_while_it_asks_for_the_task_leaves_the_session() -> None:
    sessions = sessions_of()
    session = reserve(sessions)
    asking = asyncio.create_task(session.task(asyncio.sleep(1000, {})))
    await settle()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert await session.task(asyncio.sleep(0, {"id": 1})) == {"id": 1}
    assert sessions.delete("a", now=0, key="key") is None  # there is nothing left to wait for


async def test_all_who_wait_hear_of_a_failed_setup_before_its_teardown_has_ended() -> None:
    sessions, episode = sessions_of(), Acting(setup=ValueError("x"))
    session = opened(sessions, episode)
    waiting = [asyncio.create_task(session.ready()) for _ in range(2)]
    await settle()
    episode.go.set()
    await settle()
    late = asyncio.create_task(session.ready())
    await settle()
    for task in (*waiting, late):
        assert task.done()
        with pytest.raises(ServerFailed, match=r"^it failed: x$"):
            await task
    assert episode.done == ["logged"]
    teardown = sessions.delete("a", now=0, key="key")
    assert teardown is not None
    episode.torn.set()
    await teardown
    assert "torn down" in episode.done


async def test_a_setup_that_found_no_thread_has_met_a_limit() -> None:
    episode = Acting(setup=NoThread(RuntimeError("no more")))
    session = opened(sessions_of(), episode)
    episode.go.set()
    episode.torn.set()
    with pytest.raises(ServerFailed) as failed:
        await session.ready()
    assert failed.value.reason == "limit"


async def test_a_setup_that_cancels_itself_has_failed() -> None:
    episode = Acting(setup=asyncio.CancelledError())
    session = opened(sessions_of(), episode)
    episode.go.set()
    episode.torn.set()
    with pytest.raises(ServerFailed):
        await session.ready()
    assert session.state is State.FAILED


@pytest.mark.parametrize(
    ("swallows", "error", "logged"), [(False, None, []), (True, None, []), (True, ValueError(), ["logged"])]
)
async def test_a_session_that_is_deleted_in_its_setup_stays_deleted_however_the_setup_ends(
    swallows: bool, error: BaseException | None, logged: list[str]
) -> None:
    sessions, episode = sessions_of(), Acting()
    episode.at_once, episode.swallows, episode.error = False, swallows, error
    episode.torn.set()
    session = opened(sessions, episode)
    await settle()
    opening = session._opening
    assert opening is not None
    ending = sessions.delete("a", now=0, key="key")
    assert ending is not None
    await ending
    assert (opening.cancelled(), session.state) == (not swallows, State.DELETED)
    assert opening.cancelled() or opening.exception() is None
    assert [one for one in episode.done if one == "logged"] == logged


async def test_when_the_setup_has_ended_a_session_without_teardown_ends_at_once() -> None:
    sessions, episode = sessions_of(), Acting()
    episode.at_once = False
    session = opened(sessions, episode)
    episode.go.set()
    await session.ready()
    await settle()
    assert sessions.delete("a", now=0, key="key") is None


async def test_a_fork_that_comes_as_the_setup_ends_overtakes_no_earlier_call() -> None:
    episode = Acting()
    episode.at_once = False
    session = opened(sessions_of(), episode)
    expected, forks = [], []
    for number in range(20):  # in each turn of the loop, before, while and after the setup ends
        if number == 10:
            episode.go.set()
        session.submit(f"call {number}", {}, asyncio.get_running_loop())
        forks.append(asyncio.create_task(session.fork(number)))
        expected += [f"call {number}", f"fork {number}"]
        await asyncio.sleep(0)
    await asyncio.gather(*forks)
    assert episode.done == expected


# ── Refused ──────────────────────────────────────────────────────────────────────────────────────


async def test_calls_and_forks_over_a_limit_are_told_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ors.server.sessions.session.QUEUED_CALLS", 0)
    sessions = sessions_of(calls=2)
    session, loop = opened(sessions, Acting()), asyncio.get_running_loop()
    runtime = sessions.shared
    session.submit("tool", {}, loop)
    of_session = "This session already has 0 queued calls."
    of_server = "The server is at its limit of 2 concurrent calls."
    for running, text in ((1, of_session), (2, of_server), (3, of_server)):
        runtime.running = running
        for ask in (lambda: session.submit("tool", {}, loop), session.check_room):
            with pytest.raises(Unavailable) as refused:
                ask()
            error = refused.value
            assert (str(error), error.retry_after, error.status, error.reason) == (text, 1, 429, "limit")
    await settle()


async def test_the_limit_of_the_server_holds_for_a_session_without_calls() -> None:
    sessions = sessions_of(calls=2)
    session = opened(sessions, Acting())
    sessions.shared.running = 2
    for ask in (lambda: session.submit("tool", {}, asyncio.get_running_loop()), session.check_room):
        with pytest.raises(Unavailable, match="at its limit of 2 concurrent calls"):
            ask()


async def test_a_server_that_drains_takes_neither_calls_nor_forks() -> None:
    sessions = sessions_of()
    session, loop = opened(sessions, Acting()), asyncio.get_running_loop()
    sessions.shared.draining = True
    for ask in (lambda: session.submit("tool", {}, loop), session.check_room):
        with pytest.raises(Unavailable) as refused:
            ask()
        assert refused.value.reason == "shutdown"


async def test_a_call_that_its_session_takes_along_is_told_so() -> None:
    sessions = sessions_of()
    session = opened(sessions, Acting())
    call = session.submit("tool", {}, asyncio.get_running_loop())
    assert isinstance(call, Call)
    assert [one.id for one in session.calls] == [call.id]
    sessions.delete("a", now=0, key="key")
    assert call.ending == error_event("Session deleted", "deleted")
    await settle()
