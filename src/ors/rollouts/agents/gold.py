"""GoldAgent: an agent that plays an environment's own solution."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ors.client import ToolInvocation
from ors.rollouts.agent import Conversation, TaskRef
from ors.rollouts.episodes.messages import AgentMessage
from ors.types import JSONObject, ToolSpec

TaskSpecs = Callable[[TaskRef], JSONObject | Awaitable[JSONObject]]


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
        solution = known if isinstance(known, _Solution) else _Solution(await self._solved(conversation.task))
        calls = solution.calls[len(replies) : len(replies) + 1]
        return AgentMessage(calls=calls, native=solution)

    async def _solved(self, task: TaskRef) -> tuple[ToolInvocation, ...]:
        spec: Any = task.spec if self._task_spec is None else self._task_spec(task)
        spec = await spec if inspect.isawaitable(spec) else spec
        if spec is None:
            raise ValueError("the gold agent needs the task's spec: give the task whole, or `task_spec`")
        pairs = await asyncio.to_thread(self._solve, spec)
        pairs = await pairs if inspect.isawaitable(pairs) else pairs
        return tuple(_call(number, pair) for number, pair in enumerate(pairs, 1))


@dataclass(frozen=True, slots=True)
class _Solution:
    """The calls of one episode."""

    calls: tuple[ToolInvocation, ...]


def _call(number: int, pair: Any) -> ToolInvocation:
    try:
        tool, given = pair
    except (TypeError, ValueError):
        tool, given = "", None
    if not isinstance(given, Mapping):
        raise ValueError("solve() must return pairs of a tool's name and its input")
    return ToolInvocation(str(tool), dict(given), f"call_{number}")
