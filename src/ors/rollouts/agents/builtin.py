"""Agents that come with the package: a model, nothing, random calls, a solution, and recorded episodes."""

import asyncio
import hashlib
import inspect
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from ors.client import AsyncSession, ToolInvocation
from ors.models import Model
from ors.providers.base import ModelOptions
from ors.providers.errors import ModelError
from ors.providers.messages import AgentMessage, ToolMessage, Usage
from ors.rollouts.episodes.episode import Conversation, EpisodeRecord, TaskRef, episode_key
from ors.rollouts.episodes.played import play
from ors.rollouts.episodes.rules import PlayArguments
from ors.schemas import Inputs
from ors.types import JSONObject, ToolSpec

TaskSpecs = Callable[[TaskRef], JSONObject | Awaitable[JSONObject]]


class ModelAgent(Model):
    """A model of a provider, or of a server that speaks its API. Close it after use.

    `provider` is "openai" (Chat Completions), "openai-responses", "anthropic", "google" or "openrouter".
    `base_url` and `api_key` come from the provider's usual environment variables if they are not given.
    The other options are the fields of `ModelOptions`.

    Raises:
        ValueError: the provider is unknown, has no such option, or needs a key.
    """

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AgentMessage:
        """Asks the model for its next message.

        Raises:
            ContextExceeded: the conversation is too long.
            ModelError: the provider failed.
            ValueError: the provider's rules forbid the name or the input of a tool.
        """
        reply = await self.answer(conversation.messages, tools, options=self._seeded(conversation))
        if reply.stop != "stop" or reply.calls or reply.text.strip():
            return reply
        # After results of calls, models say that they are done by saying nothing.
        if any(isinstance(message, ToolMessage) for message in conversation.messages):
            return replace(reply, stop="empty")
        raise ModelError(f"the answer from {self!r} is not valid: it has neither text nor a tool call")

    def _seeded(self, conversation: Conversation) -> ModelOptions:
        if self.options.seed is None:
            return self.options
        episode = episode_key(conversation.task, conversation.sample)
        digest = hashlib.sha256(f"{self.options.seed} {episode}".encode()).digest()
        return replace(self.options, seed=int.from_bytes(digest[:4]) // 2)  # all providers take 31 bits


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


# ── Without a model ──


class NoopAgent:
    """Replies with an empty message: what does an environment pay for doing nothing?"""

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AgentMessage:
        return AgentMessage()


class RandomAgent:
    """Calls one random tool at a time, with an input that fits its schema.

    A string with a pattern needs an example or a default for that.
    The same seed, task and sample give the same calls.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AgentMessage:
        """A call of a random tool; an empty message if there are no tools."""
        if not tools:
            return AgentMessage()
        turn = sum(message.role == "assistant" for message in conversation.messages)
        episode = episode_key(conversation.task, conversation.sample)
        source = random.Random(f"{self.seed} {turn} {episode}")
        tool = source.choice(list(tools))
        made = Inputs(source).make(tool.input_schema)
        given = dict(made) if isinstance(made, Mapping) else {}
        return AgentMessage(calls=(ToolInvocation(tool.name, given, f"call_{turn + 1}"),))


class GoldAgent:
    """Makes the calls of `solve(task_spec)`, one at a time: pairs of a tool's name and its input.

    `task_spec` gives the spec of a task, with its private fields. Without it, tasks must be given whole.
    """

    def __init__(self, solve: Callable[[JSONObject], Any], task_spec: TaskSpecs | None = None) -> None:
        self._solve = solve
        self._task_spec = task_spec

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AgentMessage:
        """The next call of the solution; an empty message after the last.

        Raises:
            ValueError: the task's spec is unknown, or `solve` does not return such pairs.
        """
        replies = [message for message in conversation.messages if isinstance(message, AgentMessage)]
        # The solution travels with the conversation: an agent keeps no state of an episode.
        known = replies[-1].native if replies else None
        solution = known if isinstance(known, tuple) else await self._solved(conversation.task)
        return AgentMessage(calls=solution[len(replies) : len(replies) + 1], native=solution)

    async def _solved(self, task: TaskRef) -> tuple[ToolInvocation, ...]:
        spec: Any = task.spec if self._task_spec is None else self._task_spec(task)
        spec = await spec if inspect.isawaitable(spec) else spec
        if spec is None:
            raise ValueError("the gold agent needs the task's spec: give the task whole, or `task_spec`")
        pairs = await asyncio.to_thread(self._solve, spec)
        pairs = await pairs if inspect.isawaitable(pairs) else pairs
        return tuple(_call(number, pair) for number, pair in enumerate(pairs, 1))


def _call(number: int, pair: Any) -> ToolInvocation:
    try:
        tool, given = pair
    except (TypeError, ValueError):
        tool, given = "", None
    if not isinstance(given, Mapping):
        raise ValueError("solve() must return pairs of a tool's name and its input")
    return ToolInvocation(str(tool), dict(given), f"call_{number}")


class ReplayAgent:
    """Repeats the replies of recorded episodes, found by task and sample; the last of several counts."""

    def __init__(self, records: Iterable[EpisodeRecord]) -> None:
        self._replies = {episode_key(record.task, record.sample): _replies(record) for record in records}

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AgentMessage:
        """The next reply of the record; an empty message after the last.

        Raises:
            ValueError: no record is of this task and sample.
        """
        task, sample = episode_key(conversation.task, conversation.sample)
        found = self._replies.get((task, sample))
        if found is None:
            raise ValueError(f"no recorded episode of {task.environment} {task.label} is sample {sample}")
        made = sum(isinstance(message, AgentMessage) for message in conversation.messages)
        return found[made] if made < len(found) else AgentMessage()


def _replies(record: EpisodeRecord) -> tuple[AgentMessage, ...]:
    spoken = (message for message in record.messages if isinstance(message, AgentMessage))
    return tuple(replace(message, usage=Usage(), seconds=0.0, native=None) for message in spoken)
