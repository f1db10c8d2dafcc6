"""`play_sync` and `rollouts_sync`: the same from sync code, on the client's background loop."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from typing import Unpack

from ors.client import Environment, Session
from ors.rollouts.agent import Agent
from ors.rollouts.driver import rollouts
from ors.rollouts.play import play
from ors.rollouts.record import EpisodeRecord
from ors.rollouts.rules import PlayArguments, RolloutArguments
from ors.rollouts.tasks import GivenTask


def play_sync(
    session: Session, agent: Agent, *, sample: int = 0, **arguments: Unpack[PlayArguments]
) -> EpisodeRecord:
    """Plays one episode: see `play`. The agent runs on another thread."""
    return session._loop.run(lambda: play(session._async, agent, sample=sample, **arguments))


def rollouts_sync(
    env: Environment, tasks: Iterable[GivenTask], agent: Agent, **arguments: Unpack[RolloutArguments]
) -> Iterator[EpisodeRecord]:
    """Plays many episodes: see `rollouts`. The agent and the iterator of the tasks run on other threads.

    Leaving the iteration cancels what runs.
    """
    return env._loop.iterate(rollouts(env._async, _in_thread(tasks), agent, **arguments))


async def _in_thread(tasks: Iterable[GivenTask]) -> AsyncIterator[GivenTask]:
    # The tasks may come from the sync client, which cannot be used on its own loop.
    iterator = iter(tasks)
    while taken := await asyncio.to_thread(list, islice(iterator, 1)):
        yield taken[0]
