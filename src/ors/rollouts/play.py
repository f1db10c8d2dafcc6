"""`play`: one episode."""

from typing import Unpack

from ors.client import AsyncSession
from ors.rollouts.agent import Agent
from ors.rollouts.episodes.played import PlayedEpisode
from ors.rollouts.episodes.record import EpisodeRecord
from ors.rollouts.episodes.rules import PlayArguments, Rules


async def play(
    session: AsyncSession, agent: Agent, *, sample: int = 0, **arguments: Unpack[PlayArguments]
) -> EpisodeRecord:
    """Plays one episode in `session`, which it opens, and closes whatever happens.

    The record's outcome says what failed, if anything did. Cancelling ends the session within a second.

    Raises:
        ValueError: `reward` is not a known reduction.
    """
    return await PlayedEpisode(session, agent, Rules(**arguments), sample).play()
