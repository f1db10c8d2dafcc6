"""SteppedEpisode: an episode whose replies come from the caller, one at a time."""

import asyncio
from collections.abc import Sequence
from typing import Unpack

from ors.client import AsyncSession
from ors.rollouts.agent import ContextExceeded, Conversation
from ors.rollouts.episodes.messages import AgentMessage, Message
from ors.rollouts.episodes.record import EpisodeRecord
from ors.rollouts.episodes.rules import PlayArguments
from ors.rollouts.play import play
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
        self._playing = asyncio.get_running_loop().create_task(play(session, self._caller, **arguments))
        self._playing.add_done_callback(self._caller.ended)

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
        self._caller.answer(message)
        self._seen += 1
        return await self._turn()

    async def stop(self, why: str) -> EpisodeRecord:
        """Truncates the episode, unless it has ended; returns its record."""
        await self._turn()
        if not self._playing.done():
            self._caller.answer(ContextExceeded(why))
        return await self._playing

    async def _turn(self) -> tuple[Message, ...]:
        try:
            await self._caller.turn.wait()
        except asyncio.CancelledError:
            self._playing.cancel()
            await asyncio.wait((self._playing,))
            raise
        record = self.record
        messages = self._caller.messages if record is None else record.messages
        new = tuple(messages[self._seen :])
        self._seen = len(messages)
        return new

    def __del__(self) -> None:
        playing = getattr(self, "_playing", None)
        if playing is not None and not playing.done() and not playing.get_loop().is_closed():
            playing.get_loop().call_soon_threadsafe(playing.cancel)


class _Caller:
    """The agent of a stepped episode. Nothing in it refers to the episode, so that a dropped one ends."""

    def __init__(self) -> None:
        self.turn = asyncio.Event()
        """Set when a reply is awaited, and when the episode has ended."""
        self.messages: Sequence[Message] = ()
        self.tools: Sequence[ToolSpec] = ()
        self._answer: asyncio.Future[AgentMessage] | None = None

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AgentMessage:
        self.messages, self.tools = conversation.messages, tools
        self._answer = asyncio.get_running_loop().create_future()
        self.turn.set()
        return await self._answer

    def ended(self, playing: "asyncio.Task[EpisodeRecord]") -> None:
        self.turn.set()

    def answer(self, answer: AgentMessage | ContextExceeded) -> None:
        if self._answer is None or self._answer.done():
            raise RuntimeError("the episode waits for no reply: it has ended, or has not begun")
        self.turn.clear()
        if isinstance(answer, AgentMessage):
            self._answer.set_result(answer)
        else:
            self._answer.set_exception(answer)
