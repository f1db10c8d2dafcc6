"""SteppedEpisode: an episode whose replies come from the caller, one at a time."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Unpack

from ors.client import AsyncSession, Session
from ors.client.transports.base import running_loop
from ors.providers.errors import ContextExceeded
from ors.providers.messages import AgentMessage, Message
from ors.rollouts.episodes.episode import Conversation, EpisodeRecord
from ors.rollouts.episodes.played import play
from ors.rollouts.episodes.rules import PlayArguments
from ors.types import ToolSpec


class SteppedEpisode:
    """One episode for callers that run the loop themselves, as trainers do. Played as by `play`.

    Use it on one event loop. Stop it if it has not ended; dropping it ends the session too.

    Raises:
        ValueError: `reward` is not a known reduction.
    """

    def __init__(self, session: AsyncSession, **arguments: Unpack[PlayArguments]) -> None:
        self._caller = _Caller()
        self._seen = 0
        self._playing = running_loop().create_task(play(session, self._caller, **arguments))
        self._playing.add_done_callback(self._caller.ask)

    @property
    def record(self) -> EpisodeRecord | None:
        """The record, once the episode has ended."""
        return self._playing.result() if self._playing.done() else None

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """The tools of the task, once the episode has begun."""
        return self._caller.tools

    async def start(self) -> tuple[Message, ...]:
        """Opens the session; returns the first messages. If that fails, there is a record at once."""
        return await self._turn()

    async def step(self, message: AgentMessage) -> tuple[Message, ...]:
        """Plays one reply; returns the messages that follow it. The episode has ended if there is a record.

        Raises:
            RuntimeError: the episode has ended, or has not begun.
        """
        return await self._turn(message)

    async def stop(self, why: str) -> EpisodeRecord:
        """Truncates the episode, unless it has ended; returns its record."""
        await self._turn()
        if not self._playing.done():
            self._caller.answer(ContextExceeded(why))
        return await self._playing

    async def _turn(self, message: AgentMessage | None = None) -> tuple[Message, ...]:
        asked = asyncio.Event()
        self.begin_turn(message, asked.set)
        try:
            await asked.wait()
        except asyncio.CancelledError:
            self.cancel()
            await asyncio.wait((self._playing,))
            raise
        return self.new_messages()

    def begin_turn(self, message: AgentMessage | None, then: Callable[[], object]) -> None:
        """Plays a reply, if any, and calls `then` when the next is awaited or the episode has ended."""
        if message is not None:
            self._caller.answer(message)
            self._seen += 1
        self._caller.when_asked(then)

    def new_messages(self) -> tuple[Message, ...]:
        """The messages since the last time."""
        record = self.record
        messages = self._caller.messages if record is None else record.messages
        new = tuple(messages[self._seen :])
        self._seen = len(messages)
        return new

    def cancel(self) -> None:
        """Ends the episode without a record."""
        self._playing.cancel()

    def __del__(self) -> None:
        playing = getattr(self, "_playing", None)
        if playing is not None and not playing.done() and not playing.get_loop().is_closed():
            playing.get_loop().call_soon_threadsafe(playing.cancel)


class SteppedEpisodeSync:
    """One episode whose replies come from the caller: `SteppedEpisode` without `await`.

    It begins with `start()`.
    """

    def __init__(self, session: Session, **arguments: Unpack[PlayArguments]) -> None:
        self._loop = session.portal
        self._session = session.wrapped
        self._arguments = arguments
        self._async: SteppedEpisode | None = None

    @property
    def record(self) -> EpisodeRecord | None:
        """The record, once the episode has ended."""
        return None if self._async is None else self._async.record

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """The tools of the task, once the episode has begun."""
        return () if self._async is None else self._async.tools

    def start(self) -> tuple[Message, ...]:
        """Opens the session; returns the first messages: see `SteppedEpisode.start`."""
        return self._turn(None)

    def step(self, message: AgentMessage) -> tuple[Message, ...]:
        """Plays one reply; returns the messages that follow it: see `SteppedEpisode.step`."""
        return self._turn(message)

    def stop(self, why: str) -> EpisodeRecord:
        """Truncates the episode, unless it has ended; returns its record: see `SteppedEpisode.stop`."""
        return self.record or self._loop.run(lambda: self._begun().stop(why))

    def _turn(self, message: AgentMessage | None) -> tuple[Message, ...]:
        return self._loop.wait(
            lambda ending: self._begun().begin_turn(message, ending.come), self._new_messages, self._cancel
        )

    def _begun(self) -> SteppedEpisode:
        # On the loop, with the first turn: a trip to the loop of its own takes 33 µs on one core.
        if self._async is None:
            self._async = SteppedEpisode(self._session, **self._arguments)
        return self._async

    def _new_messages(self) -> tuple[Message, ...]:
        return () if self._async is None else self._async.new_messages()

    def _cancel(self) -> None:
        if self._async is not None:
            self._async.cancel()


class _Caller:
    """The agent of a stepped episode. Nothing in it refers to the episode, so that a dropped one ends."""

    def __init__(self) -> None:
        self.messages: Sequence[Message] = ()
        self.tools: Sequence[ToolSpec] = ()
        self._answer: asyncio.Future[AgentMessage] | None = None
        self._asked = False
        """A reply is awaited, or the episode has ended."""
        self._waiting: list[Callable[[], object]] = []

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AgentMessage:
        self.messages, self.tools = conversation.messages, tools
        self._answer = asyncio.get_running_loop().create_future()
        self.ask()
        return await self._answer

    def ask(self, _: object = None) -> None:
        waiting, self._waiting = self._waiting, []
        self._asked = True
        for then in waiting:
            then()

    def when_asked(self, then: Callable[[], object]) -> None:
        """Calls `then` at the next turn of the caller, or at once if it is."""
        if self._asked:
            then()
        else:
            self._waiting.append(then)

    def answer(self, answer: AgentMessage | ContextExceeded) -> None:
        if self._answer is None or self._answer.done():
            raise RuntimeError("the episode is not waiting for a reply: it has ended, or has not begun")
        self._asked = False
        if isinstance(answer, AgentMessage):
            self._answer.set_result(answer)
        else:
            self._answer.set_exception(answer)
