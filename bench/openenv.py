"""OpenEnv for the comparison with peers, run by a Python that has it.

`python -m bench.openenv serve PORT`, or `python -m bench.openenv play URL CONCURRENCY SECONDS open|episodes`.
"""

import asyncio
import json
import sys
from typing import Any

from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from openenv.core.generic_client import GenericEnvClient

from bench.peer_client import STEPS, Steps, measured

MOST_SESSIONS = 4096


class Answer(Action):  # type: ignore[misc]
    answer: str


class Graded(Observation):  # type: ignore[misc]
    text: str = ""


class Bench(Environment):  # type: ignore[misc]
    """The bench's environment, as OpenEnv has them."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, *_: Any, **__: Any) -> Graded:
        return Graded(text="What is 1 + 1?")

    def step(self, action: Answer, *_: Any, **__: Any) -> Graded:
        return Graded(text=f"You answered {action.answer}.", reward=1.0)

    # The server calls these instead, so that no step needs a thread.
    async def reset_async(self, *_: Any, **__: Any) -> Graded:
        return self.reset()

    async def step_async(self, action: Answer, *_: Any, **__: Any) -> Graded:
        return self.step(action)

    @property
    def state(self) -> State:
        return State()


class Session:
    """One WebSocket, with the methods that the measurement needs."""

    def __init__(self, url: str) -> None:
        self._client = GenericEnvClient(base_url=url)

    async def open(self) -> None:
        await self._client.connect()
        await self._client.reset()

    async def step(self, answer: str) -> str:
        result = await self._client.step({"answer": answer})
        assert result.reward == 1.0
        return str(result.observation["text"])

    async def close(self) -> None:
        await self._client.close()


def main() -> None:
    if sys.argv[1] == "serve":
        import uvicorn

        app = create_fastapi_app(Bench, Answer, Graded, max_concurrent_envs=MOST_SESSIONS)
        uvicorn.run(app, port=int(sys.argv[2]), log_level="error", access_log=False)
        return
    url, concurrency, seconds, kind = sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), sys.argv[5]
    steps = Steps(lambda: Session(url), kind == "episodes", STEPS)
    print(json.dumps(asyncio.run(measured(steps, concurrency, seconds))))


if __name__ == "__main__":
    main()
