"""A provider whose model judges by a script, and verdicts for it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from ors.judges import Criterion, Judge
from tests.support.model_provider import ChatAnswers, CheckedScript
from tests.support.scripted_server import Reply, Request, answer, scripted

KEY = "sk-never-tell-this-12345678"
RUBRIC = [Criterion("correct", "It is right.", 0.6), Criterion("kind", "It is kind.", 0.4, scale=4)]
_CHAT = ChatAnswers()


@dataclass
class Judging(CheckedScript):
    """Notes how many requests it answers at the same time."""

    running: int = 0
    most: int = 0

    async def reply(self, request: Request, writer: Any) -> bool:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            return await super().reply(request, writer)
        finally:
            self.running -= 1

    def says(self, *replies: Reply | str) -> None:
        """What the model replies in turn; the last one stays."""
        self.on(_CHAT.path, *(said(each) if isinstance(each, str) else each for each in replies))

    async def until_asked_for(self, times: int) -> None:
        await self.until_asked(_CHAT.path, times)

    def prompts(self) -> list[str]:
        """The last message of each request."""
        return [each.json()["messages"][-1]["content"] for each in self.asked(_CHAT.path)]

    def judge(self, model: Any = "openai:some-model", rubric: Any = RUBRIC, **options: Any) -> Judge:
        place: Any = {"base_url": f"{self.url}/v1", "backoff_seconds": 0.001}
        return Judge(model, rubric, **(place | options))


@asynccontextmanager
async def judging(*replies: Reply | str) -> AsyncIterator[Judging]:
    """A provider, whose requests must all have been valid."""
    script = Judging(format=_CHAT.format)
    async with scripted(script=script):
        script.says(*replies)
        yield script
    assert script.faults == []


def verdict(correct: Any = 1, kind: Any = 4) -> str:
    return json.dumps({"correct": {"reason": "because", "score": correct}, "kind": {"score": kind}})


def said(text: str, **more: Any) -> Reply:
    return answer(_CHAT(text, **more))


def held(text: str, until: asyncio.Event) -> Reply:
    """A reply that comes when the event is set."""
    whole = said(text).data
    return Reply(b"", hold=until, then=whole)
