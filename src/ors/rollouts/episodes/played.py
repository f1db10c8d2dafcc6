"""Plays one episode, from the opening of its session to its record."""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from time import perf_counter, time
from typing import Any, Unpack, get_args

from ors._json import dumps
from ors.client import AsyncSession, ToolInvocation
from ors.client.sessions.create import Ending, all_ended
from ors.client.transports.base import running_loop
from ors.errors import ORSError, ToolCallError
from ors.providers.errors import ContextExceeded
from ors.providers.messages import (
    NO_USAGE,
    AgentMessage,
    StopReason,
    SystemMessage,
    ToolMessage,
    Usage,
    UserMessage,
    text_blocks,
)
from ors.rollouts.episodes.episode import Agent, Conversation, EpisodeRecord, RunningEpisode, mask_of, task_of
from ors.rollouts.episodes.outcome import (
    CANCELLED,
    Failed,
    Outcome,
    Party,
    Refused,
    Stage,
    Truncated,
    agent_failed,
    ended,
    session_failed,
)
from ors.rollouts.episodes.rules import PlayArguments, Rules
from ors.types import ToolSpec

_HURRY_SECONDS = 0.8
_INSTANT_SECONDS = 0.001  # less is not worth a copy of the message

logger = logging.getLogger("ors.rollouts")


async def play(
    session: AsyncSession, agent: Agent, *, sample: int = 0, **arguments: Unpack[PlayArguments]
) -> EpisodeRecord:
    """Plays one episode in `session`, which it opens, and closes whatever happens.

    The record's outcome says what failed, if anything did. Cancelling ends the session within a second.

    Raises:
        ValueError: `reward` is not a known reduction.
    """
    ending: Ending = set()
    record = await PlayedEpisode(session, agent, Rules(**arguments), sample, ending=ending).play()
    await all_ended(ending, session._remote.options.request_seconds)
    return record


class _Stopped(Exception):
    """Stops the episode with an outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


class CallbackFailed(BaseException):
    """A callback raised its cause, which is not an error of the agent: it goes to the caller."""


class PlayedEpisode:
    """One episode, from the opening of its session to its record. Played once, by the task that makes it."""

    def __init__(
        self,
        session: AsyncSession,
        agent: Agent,
        rules: Rules,
        sample: int = 0,
        model_slots: asyncio.Semaphore | None = None,
        on_turn: Callable[[RunningEpisode], object] | None = None,
        ending: Ending | None = None,
    ) -> None:
        self.id = os.urandom(16).hex()
        self._on_turn = on_turn
        self._ending = ending
        self._cancelled = False
        self._session = session
        self._agent = agent
        self._rules = rules
        self._model_slots = model_slots
        self._conversation = Conversation(task_of(session), sample, session=session)
        self._messages = self._conversation.messages
        self._tools: tuple[ToolSpec, ...] = ()
        self._rewards: list[float | None] = []
        self._usage = NO_USAGE
        self._turns = 0
        self._nudged = False
        self._last: str | None = None  # the `@terminal` tool, if the agent sees it: its call ends the episode
        self._stage: Stage = "opening"
        self._sent = False  # whether the session was open when a call began
        self._started = time()
        self._began = perf_counter()
        task = asyncio.current_task(running_loop())
        assert task is not None
        self._task = task

    async def play(self) -> EpisodeRecord:
        """Plays the episode; closes the session whatever happens. If all went well, that is in `ending`."""
        try:
            joining = getattr(self._agent, "joining", None)
            await self._open(terminal=joining is not None)
            if joining is None:
                outcome = await self._in_time()
            else:
                async with joining(self._conversation, self._tools):
                    outcome = await self._in_time()
        except BaseException as error:
            found = self._ended_by(error)
            if found is None:
                await self._close_soon()
                raise
            outcome = found
        seconds = self._elapsed()
        out_of_time = isinstance(outcome, Truncated) and outcome.limit == "seconds"
        if isinstance(outcome, Failed) or out_of_time:
            await self._close_soon()
        else:
            await self._session._leave(self._ending)
        return self._record(outcome, seconds)

    def now(self) -> RunningEpisode:
        """Where it is."""
        task, sample = self._conversation.task, self._conversation.sample
        return RunningEpisode(self.id, task, sample, self._stage, self._turns, self._elapsed())

    def cancel(self) -> None:
        """Ends the episode: `play` returns a record that says so."""
        self._cancelled = True
        self._task.cancel()

    def so_far(self) -> EpisodeRecord:
        """The record of what was played until now, as if the agent had left."""
        return self._record(ended(self._rewards), self._elapsed())

    def _ended_by(self, error: BaseException) -> Outcome | None:
        """The outcome of an episode that an error has ended; None if all episodes end."""
        match error:
            case _Stopped():
                return error.outcome
            case asyncio.CancelledError() if self._cancelled and not self._task.uncancel():
                return Failed("infrastructure", self._stage, CANCELLED, "The caller cancelled the episode")
            case ORSError():
                return session_failed(error, self._stage, sent=self._sent)
            case TimeoutError():
                seconds = self._rules.limits.seconds
                return Truncated("seconds", f"{seconds:g} s, at the stage {self._stage!r}")
            case Exception():  # such as a task that JSON cannot express; other episodes go on
                logger.debug("the episode failed", exc_info=error)
                return agent_failed(error, self._stage)
        return None

    async def _open(self, *, terminal: bool) -> None:
        if self._rules.system is not None:
            self._messages.append(SystemMessage(self._rules.system))
        await self._session.start()
        # Waits for the setup, which may fail.
        self._tools = await self._session._shared_tools(terminal=terminal)
        last = await self._session.terminal_tool() if terminal else None
        self._last = None if last is None else last.name
        self._stage = "prompt"
        self._messages.append(UserMessage(await self._session.get_prompt()))
        self._stage = "model"

    def _in_time(self) -> Coroutine[Any, Any, Outcome]:
        # No coroutine of its own where there is no limit: each call goes through all of them.
        seconds = self._rules.limits.seconds
        return self._take_turns() if seconds is None else self._limited(seconds)

    async def _limited(self, seconds: float) -> Outcome:
        async with asyncio.timeout(seconds) as clock:
            return await self._take_turns(clock)

    async def _take_turns(self, clock: asyncio.Timeout | None = None) -> Outcome:
        limits = self._rules.limits
        while (reached := limits.reached(self._turns, self._usage)) is None:
            message = await self._reply(clock)
            self._messages.append(message)
            self._turns += 1
            if message.usage is not NO_USAGE:
                self._usage += message.usage
            if unknown := limits.blind(self._usage):
                text = f"cannot enforce the limit on {unknown}"
                return Failed("model", "model", "UsageUnknown", text, final=True)
            self._stage = "call"
            _check_stop(message)
            if not message.calls:
                goes_on = await self._goes_on(message)
            elif self._rules.parallel and len(message.calls) > 1:
                goes_on = await self._call_together(message.calls)
            else:
                for call in message.calls:  # here, since one more coroutine would cost each call 0.3 µs
                    self._add(result := await self._call(call))
                    if result.finished:
                        break
                goes_on = not result.finished
            if self._on_turn is not None:
                self._tell(self._on_turn)
            if not goes_on:
                return ended(self._rewards)
        return reached

    def _tell(self, on_turn: Callable[[RunningEpisode], object]) -> None:
        try:
            on_turn(self.now())
        except Exception as error:
            raise CallbackFailed from error

    async def _take_model_slot(self, slots: asyncio.Semaphore, clock: asyncio.Timeout | None) -> None:
        deadline = None if clock is None else clock.when()
        if clock is None or deadline is None or not slots.locked():
            await slots.acquire()
            return
        loop = asyncio.get_running_loop()
        # The clock stands still: that others are served first is not the agent's doing.
        since = loop.time()
        clock.reschedule(None)
        await slots.acquire()
        clock.reschedule(deadline + loop.time() - since)

    async def _reply(self, clock: asyncio.Timeout | None) -> AgentMessage:
        self._stage = "model"
        task, slots = self._task, self._model_slots
        if slots is not None:
            await self._take_model_slot(slots, clock)
        since, cancelling = perf_counter(), task.cancelling()
        outcome: Outcome | None = None
        try:
            message = await self._agent.reply(self._conversation, self._tools)
            check_reply(message)
        except ContextExceeded as error:
            outcome = Truncated("tokens", str(error))
        except (Exception, asyncio.CancelledError) as error:
            logger.debug("the agent failed", exc_info=error)
            outcome = agent_failed(error)
        finally:
            if slots is not None:
                slots.release()
        # An agent may turn a cancellation into another error, or into a reply; or raise one of its own.
        if task.cancelling() > cancelling:
            raise asyncio.CancelledError
        if outcome is not None:
            raise _Stopped(outcome)
        seconds = perf_counter() - since
        return message if message.seconds or seconds < _INSTANT_SECONDS else replace(message, seconds=seconds)

    async def _goes_on(self, message: AgentMessage) -> bool:
        """Takes a message without calls; returns whether the episode goes on."""
        if message.stop == "pause":
            return True
        terminal = await self._session.terminal_tool()
        # Nothing is no answer. A tool that takes none ends the episode all the same.
        if terminal is not None and (message.stop != "empty" or terminal.arg is None):
            self._add(await self._call(ToolInvocation(terminal.name, {}), last=message.text))
            return False
        if self._rules.nudge is None or self._nudged:
            return False
        self._messages.append(UserMessage(text_blocks(self._rules.nudge)))
        self._nudged = True
        return True

    async def _call_together(self, calls: Sequence[ToolInvocation]) -> bool:
        """Runs the calls; returns whether the episode goes on."""
        running = [asyncio.ensure_future(self._call(call)) for call in calls]
        try:
            # All are awaited, so that none is cut off because another has failed.
            await asyncio.gather(*running, return_exceptions=True)
        finally:  # also if time is up: what has ended counts
            for each in running:
                if not (each.cancelled() or each.exception()):
                    self._add(each.result())
        results = [each.result() for each in running]  # or the first error
        return not any(result.finished for result in results)

    async def _call(self, call: ToolInvocation, last: str | None = None) -> ToolMessage:
        """Runs a call; with `last`, that of the `@terminal` tool."""
        name, session, began = call.name, self._session, self._began
        started = perf_counter() - began
        if call.error is not None:
            text = text_blocks(call.error)
            return ToolMessage(call.id, name, text, False, "input_validation", started=started)
        self._sent = session.kept
        try:
            if last is None:
                output = await session._call({"name": name, "input": call.input}, call_id=call.id)
            else:
                output = await session.call_terminal_tool(last)
        except ToolCallError as refusal:
            text, took = text_blocks(str(refusal)), self._elapsed() - started
            return ToolMessage(call.id, name, text, False, refusal.reason, started=started, seconds=took)
        except (TypeError, ValueError, RecursionError) as error:
            # JSON cannot express the input that the agent has made.
            raise _Stopped(agent_failed(error, "call")) from None
        reward, finished = output.reward, output.finished or name == self._last
        took = perf_counter() - began - started
        # By position, which takes half the time.
        return ToolMessage(
            call.id, name, output.blocks, True, None, reward, finished, output.metadata, started, took
        )

    def _add(self, result: ToolMessage) -> None:
        self._messages.append(result)
        self._rewards.append(result.reward)

    async def _close_soon(self) -> None:
        # What is not deleted in time is deleted in the background.
        with suppress(TimeoutError):
            async with asyncio.timeout(_HURRY_SECONDS):
                await self._session.close()

    def _record(self, outcome: Outcome, seconds: float) -> EpisodeRecord:
        try:
            reward = self._rules.score(outcome, self._rewards)
        except Exception as error:
            who: Party = "agent" if callable(self._rules.reward) else "environment"
            outcome = Failed(who, "closing", type(error).__name__, f"the rewards cannot be reduced: {error}")
            reward = None
        replies = (each for each in self._messages if type(each) is AgentMessage)
        usages = [each.usage for each in replies if each.usage is not NO_USAGE]
        record = EpisodeRecord(
            id=self.id,
            task=self._conversation.task,
            sample=self._conversation.sample,
            outcome=outcome,
            reward=reward,
            rewards=tuple(self._rewards),
            messages=tuple(self._messages),
            tools=self._tools,
            usage=sum(usages, NO_USAGE),
            agent=self._rules.agent_name,
            session=self._session.sid,
            started=self._started,
            seconds=seconds,
            components=self._rules.components(outcome, self._messages),
            program=self._conversation.program,
        )
        mask = mask_of(self._session)
        return record if mask is None else record.masked(mask)

    def _elapsed(self) -> float:
        return perf_counter() - self._began


# ── Replies, which are anybody's code ──

_TEXT = (str, type(None))
_KINDS: dict[type, dict[str, Any]] = {
    AgentMessage: {"text": str, "calls": (tuple, list), "reasoning": _TEXT, "seconds": (float, int)},
    # `dict` first: asking whether something is a Mapping takes ten times as long.
    ToolInvocation: {"name": str, "input": (dict, Mapping), "id": _TEXT, "error": _TEXT, "raw": _TEXT},
    Usage: {**dict.fromkeys(Usage.__slots__, int), "cost": (float, int, type(None))},
}
_STOPS = get_args(StopReason)


def _check_stop(message: AgentMessage) -> None:
    if message.stop == "refusal":
        raise _Stopped(Refused())
    if message.stop == "length" and all(call.error is not None for call in message.calls):
        raise _Stopped(Truncated("tokens", "the model's output was cut off"))


def check_reply(message: object) -> None:
    """Checks that a reply is one that a record can keep."""
    _check(message, AgentMessage, "the agent's reply")
    assert isinstance(message, AgentMessage)
    if message.stop not in _STOPS:
        raise ValueError(f"the agent's reply has the stop {message.stop!r:.100}, not one of {_STOPS}")
    if message.usage is not NO_USAGE:
        _check(message.usage, Usage, "the usage of the agent's reply")
    for call in message.calls:
        _check(call, ToolInvocation, "a call of the agent")
        dumps(call.input)


def _check(value: object, kind: type, what: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{what} is of the type {type(value).__name__}, not {kind.__name__}")
    for name, kinds in _KINDS[kind].items():
        if not isinstance(found := getattr(value, name), kinds):
            raise TypeError(f"{what} has a field {name!r} of the wrong type {type(found).__name__}")
