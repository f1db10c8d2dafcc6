"""A session: one episode under its id, with its calls, from its creation to its end.

      start           setup ends          fails            delete, expiry, shutdown
(new) ─────▶ CREATING ──────────▶ READY ────────▶ FAILED   any of them ─────▶ DELETED
                 └────── setup raises ──────────────▲
"""

import asyncio
import enum
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ors._json import dumps
from ors.errors import Gone, NotFound, ORSError, ServerFailed, Unavailable
from ors.limits import QUEUED_CALLS, Limits
from ors.server.episodes.episode import Episode, SetupTimeout
from ors.server.episodes.result import Result, failed
from ors.server.episodes.threads import failure_reason
from ors.server.observe.events import (
    CallEnded,
    CallFinished,
    CallReplayed,
    CallStarted,
    EpisodeForked,
    EpisodeStarted,
    PromptAsked,
    SessionEnded,
    SessionOpened,
    SessionReady,
    ThreadLost,
    ToolsListed,
)
from ors.server.sessions.calls import Call, Calls, EarlyCalls, Forks, NoCall
from ors.server.sessions.score import Score, end_episode, tell_closed
from ors.server.sessions.shared import Shared
from ors.types import Blocks, JSONObject, ListToolsOutput

log = logging.getLogger("ors.server")


class State(enum.Enum):
    CREATING = "creating"
    READY = "ready"
    FAILED = "failed"
    DELETED = "deleted"

    __hash__ = object.__hash__  # that of Enum is written in Python


CREATING, READY, FAILED, DELETED = State
"""Used by every session: `State.READY` takes CPython 3.11 0.14 µs."""

TRANSITIONS: dict[State, frozenset[State]] = {
    CREATING: frozenset({READY, FAILED, DELETED}),
    READY: frozenset({FAILED, DELETED}),
    FAILED: frozenset({DELETED}),
    DELETED: frozenset(),
}


@dataclass(eq=False, repr=False, slots=True)
class ServerSession:
    """One episode under an id, with its calls. Belongs to the API key that created it."""

    _shared: Shared
    limits: Limits
    sid: str
    environment: str
    key: str
    created: float
    seen: float = field(init=False)
    """When it was active last."""
    state: State = CREATING
    failure: ServerFailed | None = None
    episode: Episode | None = None
    place: tuple[str, int] | None = None
    """The split and the index of its task; None if the client gave the task whole."""
    needs_pings: bool = False
    """Whether it expires without requests even while a call runs."""
    score: Score = field(default_factory=Score)
    calls: Calls = field(init=False)
    """Running calls, and those whose results are kept."""
    forks: Forks | None = None  # most sessions are never forked
    token: str = ""
    """Its name for MCP clients, once it has one."""
    _opening: asyncio.Task[Any] | None = None
    _settled: asyncio.Future[None] | None = None  # set while somebody waits for the end of CREATING
    _early: EarlyCalls | None = None
    _ended: tuple[str, str] = ("", "")  # the message and the reason of its end

    def __post_init__(self) -> None:
        self.seen = self.created
        self.calls = Calls(self._shared, self._call_finished)

    async def task(self, asked: Coroutine[Any, Any, JSONObject]) -> JSONObject:
        """Waits for the task of this session. Raises Gone if the session ends first."""
        self._opening = opening = asyncio.create_task(asked)
        try:
            return await opening
        except asyncio.CancelledError:
            self.check()
            raise
        finally:
            self._opening = None

    def start(
        self, episode: Episode, trace: str = "", started: EpisodeStarted | EpisodeForked | None = None
    ) -> None:
        """Sets the environment up, in the background. `started` is for recorders, if there are any."""
        self.check()
        self.episode = episode
        if started is not None:
            self._shared.observers.record(started)
        self._shared.observers.tell(SessionOpened(self.sid, self.environment, self.key, trace))
        if episode.set_up_at_once():
            self._opened(None)
        else:
            self._opening = asyncio.create_task(self._open(episode))

    async def _open(self, episode: Episode) -> None:
        try:
            await episode.setup()
        except BaseException as error:  # SystemExit too: an author's constructor must not end the server
            if isinstance(error, asyncio.CancelledError) and self.state is not CREATING:
                raise  # cancelled by end(); a cancellation by the author's code is a failure
            failure = episode.setup_failed(error)
            if self.state is CREATING:
                reason = "setup_timeout" if isinstance(error, SetupTimeout) else failure_reason(error)
                self._opened(ServerFailed(failure, reason=reason))
                await episode.teardown()
        else:
            if self.state is CREATING:  # otherwise it was deleted meanwhile
                self._opened(None)
        finally:
            self._opening = None

    def _opened(self, failure: ServerFailed | None) -> None:
        self.failure = failure
        self._set_state(READY if failure is None else FAILED)
        seconds = self._shared.now() - self.created
        reason = (failure.reason or "") if failure else ""
        self._shared.observers.tell(SessionReady(self.sid, self.environment, seconds, reason))

    def _set_state(self, state: State) -> None:
        if state not in TRANSITIONS[self.state]:
            raise RuntimeError(f"a session that is {self.state.value} cannot become {state.value}")
        self.state = state
        if self._settled is not None:
            self._settled.set_result(None)
            self._settled = None

    async def ready(self) -> Episode:
        """The episode, once it is set up.

        Raises:
            Gone: the session has ended.
            ServerFailed: the environment could not be set up.
        """
        while self.state is CREATING and self._opening is not None:
            # Not for the opening alone: it includes the teardown of a failed setup, which may take long.
            if self._settled is None:
                self._settled = asyncio.get_running_loop().create_future()
            await asyncio.wait({self._opening, self._settled}, return_when=asyncio.FIRST_COMPLETED)
        self.check()
        if self.episode is None:
            raise NotFound("Session not found")
        return self.episode

    async def prompt(self) -> bytes:
        """The prompt, as JSON. Raises as `ready` does, and ServerFailed if the environment failed."""
        episode = await self.ready()
        try:
            return await self._shared.prompts.asked(self.sid, partial(self._ask_prompt, episode))
        except asyncio.CancelledError:
            self.check()  # if the session has ended, that is the reason
            raise

    async def _ask_prompt(self, episode: Episode) -> bytes:
        try:
            prompt: Blocks = await episode.prompt()
        except ServerFailed as error:
            self.score.failed |= not self.score.calls
            self._shared.observers.show(PromptAsked(self.sid, [], str(error)))
            raise
        self.score.failed &= bool(self.score.calls)
        if self._shared.observers.watched:
            self._shared.observers.show(PromptAsked(self.sid, prompt))
        told = b"%b" % dumps(prompt)  # it is kept: see COPIED_BYTES
        if self._shared.recent is not None:
            self._shared.recent.add_prompt(self.sid, self.key, told)
        return told

    async def tools(self) -> ListToolsOutput:
        """The tools of the task. Raises as `prompt` does."""
        listed = await (await self.ready()).tools()
        self._shared.observers.show(ToolsListed(self.sid, listed.tools))
        return listed

    async def _ready_in_turn(self) -> None:
        # Calls that came during the setup go first, in their order. When it ends they have not started yet,
        # and a call that comes in that moment would overtake them.
        self._early = early = self._early or EarlyCalls()
        early.count += 1
        try:
            async with early.line:
                await self.ready()
        finally:
            early.count -= 1
            if not early.count:
                self._early = None

    # ── Calls ────────────────────────────────────────────────────────────────────────────────────

    def submit(
        self,
        name: str,
        given: dict[str, Any],
        loop: asyncio.AbstractEventLoop,
        task_id: str | None = None,
        key: str | None = None,
        trace: str = "",
        request: bytes | None = None,
    ) -> Call | NoCall:
        """Starts a call, or rejoins the one that a task id or an idempotency key names."""
        calls, shared = self.calls, self._shared
        known = None if task_id is key is None else calls.known(task_id, key)
        if known is not None:
            if isinstance(known, Call):
                shared.observers.tell(CallReplayed(self.sid, self.environment, known.id))
            return known
        if shared.draining or shared.running >= shared.most_running or calls.running > QUEUED_CALLS:
            self.check_room()
        episode, early = self.episode, self.state is not READY or self._early is not None
        work = self._call_early if early or episode is None else episode.call
        call = calls.start(work, name, given, next(shared.task_ids), key, trace, loop, request)
        watched = shared.observers.watched
        if watched and self.sid in watched:
            shared.observers.show(CallStarted(self.sid, name, call.id, given))
        return call

    @property
    def running(self) -> int:
        """Calls and forks that run or wait for their turn."""
        return self.calls.running + (0 if self.forks is None else len(self.forks))

    def check_room(self) -> None:
        """Raises Unavailable if no call or fork may wait for its turn: the server or the session is busy."""
        shared = self._shared
        shared.check_open()
        if shared.running >= shared.most_running:
            text = f"The server is at its limit of {shared.limits.calls} concurrent calls."
        elif self.running > QUEUED_CALLS:
            text = f"This session already has {QUEUED_CALLS} queued calls."
        else:
            return
        raise Unavailable(text, retry_after=1, status=429, reason="limit")

    async def fork(self, count: int) -> list[Episode]:
        """Copies of the episode, made when the turn of the fork has come."""
        if self.state is not READY or self._early is not None:
            await self._ready_in_turn()
        assert self.episode is not None
        return await self.episode.fork(count)

    async def _call_early(self, name: str, given: dict[str, Any]) -> Result:
        try:
            await self._ready_in_turn()
        except ORSError as error:
            return failed(str(error), error.reason or "")
        assert self.episode is not None
        return await self.episode.call(name, given)

    def _fail(self, episode: Episode, tool: str) -> None:
        self._set_state(FAILED)
        self.failure = ServerFailed(episode.broken, reason=episode.broken_by)
        if episode.broken_by == "tool_timeout":
            lost = episode.lost_threads
            self._shared.observers.tell(ThreadLost(self.sid, self.environment, tool, lost))

    def _call_finished(self, call: Call, result: Result) -> None:
        if result.kind == "failed" and self.state is READY:
            assert self.episode is not None
            if self.episode.broken:
                self._fail(self.episode, call.tool)
        self.seen = call.finished_at  # a running call counts as activity, up to its end
        self.score.add(result)
        labels = (self.environment, call.tool, result.kind, result.reason)
        shared, ending = self._shared, result.ending
        shared.calls.add(labels, call.seconds, len(ending))
        recent = shared.recent
        if recent is not None and recent.left > 0:
            recent.add(
                self.sid, self.key, call.id, call.tool, call.seconds, call.finished_at, call.request, ending
            )
        observers = shared.observers
        if observers.all or result.kind != "ok" or log.isEnabledFor(logging.DEBUG):
            observers.tell(
                CallFinished(
                    self.sid,
                    self.environment,
                    call.tool,
                    call.id,
                    result.kind,
                    result.reason,
                    call.seconds,
                    len(ending),
                    result.reward,
                    result.finished,
                    call.trace,
                    result.components or {},
                )
            )
        if observers.watched and self.sid in observers.watched:
            observers.show(CallEnded(self.sid, call.tool, call.id, call.seconds, ending))
        if result.finished and not self.score.counted:
            end_episode(self, self._shared, failed=False)

    def check(self) -> None:
        """Raises the error for requests to a session that has failed or ended."""
        if self.failure is not None:
            raise ServerFailed(str(self.failure), reason=self.failure.reason)
        if self.state is DELETED:
            message, reason = self._ended
            raise Gone(message, reason=reason)

    def end(self, message: str, reason: str) -> asyncio.Task[None] | None:
        """Stops running calls and tears down; returns the task of the teardown, if there is one."""
        if self.state is CREATING and self._opening is not None:
            self._opening.cancel()
        before, failure = self.state, self.failure
        self._set_state(DELETED)
        self._ended = (message, reason)
        self.failure = None
        forking = [] if self.forks is None else self.forks.stop()
        stopped: list[asyncio.Task[Any]] = [*forking, *self._shared.prompts.end(self.sid)]
        at_once = self._opening is None and not stopped
        if self.calls.running:
            stopped += self.calls.stop(message, reason)
        if self.episode is not None and not self.score.counted:
            has_failed = before is not READY or self.score.failed or reason != "deleted"
            end_episode(self, self._shared, has_failed)
        if self.episode is not None and self.sid in self._shared.observers.watched:
            set_up = before is READY or bool(self.episode.broken)
            why = ("", "") if failure is None else (str(failure), failure.reason or "")
            self._shared.observers.end(SessionEnded(self.sid, reason, message, set_up, *why))
        if at_once and (self.episode is None or not self.episode.needs_teardown):
            self.calls.close()
            tell_closed(self, self._shared, reason, 0.0)
            return None
        return asyncio.create_task(self._end(reason, stopped))

    async def _end(self, reason: str, stopped: list[asyncio.Task[Any]]) -> None:
        # Cancelled code may clean up first, but not for ever.
        waiting = [task for task in (*stopped, self._opening) if task is not None]
        if waiting:
            await asyncio.wait(waiting, timeout=self.limits.teardown_seconds)
        began = self._shared.now()
        if self.episode is not None:
            await self.episode.teardown()
        self.calls.close()
        tell_closed(self, self._shared, reason, self._shared.now() - began)
