"""Sync wrappers for `play` and `rollouts`."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Unpack

from ors.client import Environment, Session
from ors.providers.messages import AgentMessage, Message
from ors.rollouts.driver import rollouts
from ors.rollouts.episodes.episode import Agent, EpisodeRecord, GivenTask
from ors.rollouts.episodes.played import play
from ors.rollouts.episodes.rules import PlayArguments, RolloutArguments
from ors.rollouts.episodes.stepped import SteppedEpisode
from ors.types import ToolSpec


def play_sync(
    session: Session, agent: Agent, *, sample: int = 0, **arguments: Unpack[PlayArguments]
) -> EpisodeRecord:
    """Plays one episode: see `play`. The agent runs on another thread."""
    return session.portal.run(lambda: play(session.wrapped, agent, sample=sample, **arguments))


def rollouts_sync(
    env: Environment, tasks: Iterable[GivenTask], agent: Agent, **arguments: Unpack[RolloutArguments]
) -> Iterator[EpisodeRecord]:
    """Plays many episodes: see `rollouts`. The agent and the iterator of the tasks run on other threads.

    Leaving the iteration cancels what runs.
    """
    return env.portal.iterate(rollouts(env.wrapped, _in_thread(tasks), agent, **arguments))


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


async def _in_thread(tasks: Iterable[GivenTask]) -> AsyncIterator[GivenTask]:
    # The tasks may come from the sync client, which cannot be used on its own loop.
    iterator = iter(tasks)
    while taken := await asyncio.to_thread(list, islice(iterator, 1)):
        yield taken[0]
