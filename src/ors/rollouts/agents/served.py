"""`play_model`: one episode of the model at an address."""

from collections.abc import Mapping
from typing import Any, Unpack

from ors.client import AsyncSession
from ors.rollouts.agents.model import ModelAgent
from ors.rollouts.episodes.record import EpisodeRecord
from ors.rollouts.episodes.rules import PlayArguments
from ors.rollouts.play import play


async def play_model(
    session: AsyncSession,
    base_url: str,
    model: str,
    *,
    api_key: str | None = None,
    options: Mapping[str, Any] | None = None,
    sample: int = 0,
    **arguments: Unpack[PlayArguments],
) -> EpisodeRecord:
    """Plays one episode in `session` with a model that is served as Chat Completions: see `play`.

    For trainers that capture the tokens behind an address of their own. `options` are those of `ModelAgent`.

    Raises:
        ValueError: `base_url` or an option is not valid, or `reward` is not a known reduction.
    """
    agent = ModelAgent("openai", model, base_url=base_url, api_key=api_key, **(options or {}))
    try:
        return await play(session, agent, sample=sample, **arguments)
    finally:
        await agent.close()
