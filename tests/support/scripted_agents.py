"""Agents that play by a script."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ors.client import ToolInvocation
from ors.rollouts import AgentMessage, Conversation
from ors.types import ToolSpec

Reply = AgentMessage | BaseException | Callable[[Conversation], Awaitable[AgentMessage]]


def call(name: str, id: str | None = None, /, **given: Any) -> ToolInvocation:
    return ToolInvocation(name, given, id)


def calls(*invocations: ToolInvocation, **fields: Any) -> AgentMessage:
    return AgentMessage(calls=invocations, **fields)


def reward(value: float | None, *, finished: bool = False) -> ToolInvocation:
    """A call of the tool of `Lab` that gives rewards."""
    return call("reward", value=value, finished=finished)


WIN = calls(reward(1.0, finished=True))
STAY = calls(call("stay"))
"""A call that lasts for ever."""


class Script:
    """Replies in each episode with the same messages in turn; the last one stays. An error is raised."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = replies
        self.tools: Sequence[ToolSpec] = ()
        self.asked = 0

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AgentMessage:
        self.tools = tools
        self.asked += 1
        turn = sum(isinstance(message, AgentMessage) for message in conversation.messages)
        reply = self.replies[min(turn, len(self.replies) - 1)]
        if isinstance(reply, AgentMessage):
            return reply
        if isinstance(reply, BaseException):
            raise reply
        return await reply(conversation)


class Thinker:
    """Wins the first episodes. In all others it thinks for ever, or makes a call that lasts for ever."""

    def __init__(self, wins: int = 0, *, calls: bool = False) -> None:
        self._wins = wins
        self._calls = calls
        self.thinking = 0

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AgentMessage:
        if self._wins > 0:
            self._wins -= 1
            return WIN
        self.thinking += 1
        if self._calls:
            return STAY
        await asyncio.Event().wait()
        raise AssertionError
