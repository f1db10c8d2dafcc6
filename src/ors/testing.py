"""Tests an environment in this process, without sockets.

async def test_the_right_answer_is_rewarded() -> None:
    async with ors.testing.session(MyEnv, task_spec={"question": "2+2", "answer": "4"}) as session:
        output = await session.call_tool("submit", {"answer": "4"})
        assert output.reward == 1.0
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from ors import Environment, JSONObject, Server
from ors.client import ASGITransport, AsyncORS, AsyncSession, Options, Task

__all__ = ["client", "environment", "session"]

IN_PROCESS = "http://in-process"


def environment(target: str, config: Mapping[str, Any] | None = None) -> type[Environment]:
    """The environment of a TARGET, such as an installed name or `package.module:Class`, with parameters.

    Raises:
        InvalidEnvironment: a parameter is wrong.
        ValueError: the TARGET is not one environment.
    """
    from click import ClickException  # late: a test with a class needs no command line

    from ors.cli.targets.resolve import one_environment

    try:
        return one_environment(target).configured(**(config or {}))
    except ClickException as error:
        raise ValueError(error.message) from None


@asynccontextmanager
async def client(
    served: Server | type[Environment], *, options: Options | None = None
) -> AsyncIterator[AsyncORS]:
    """A client of a server, or of one environment. Leaving the block ends every session.

    Raises:
        InvalidEnvironment: the environment class is not valid; the message says where.
    """
    server = served if isinstance(served, Server) else Server([served])
    async with AsyncORS(IN_PROCESS, options=options, transport=ASGITransport(server.app)) as made:
        yield made


@asynccontextmanager
async def session(
    served: Server | type[Environment],
    task_spec: JSONObject | None = None,
    *,
    split: str | None = None,
    index: int | None = None,
    secrets: Mapping[str, str] | None = None,
    environment: str | None = None,
) -> AsyncIterator[AsyncSession]:
    """An open session for a task, given whole or by split and index; `environment` is the first by default.

    Raises:
        InvalidEnvironment: the environment class is not valid; the message says where.
        ResponseError: the server refuses, as when there is no such task.
    """
    async with client(served) as made:
        name = environment or (await made.list_environments())[0]
        task = Task(name, task_spec) if task_spec is not None else None
        async with made.environment(name).session(task, secrets, split=split, index=index) as opened:
            yield opened
