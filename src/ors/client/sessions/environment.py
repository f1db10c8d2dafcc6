"""One environment of a server."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any, overload
from urllib.parse import quote

from ors._protocol import (
    DESCRIPTION,
    NUM_TASKS,
    SPLITS,
    TASK,
    TASK_RANGE,
    TASKS,
    TOOLS,
    Endpoint,
)
from ors.client.requests.decode import (
    Task,
    field,
    items,
    object_of,
    required_secrets,
    reward_spec,
    terminal_tool,
    tools,
)
from ors.client.requests.server import RemoteServer
from ors.client.sessions.session import AsyncSession
from ors.client.transports.base import Bound
from ors.errors import ResponseError
from ors.providers import Provider
from ors.providers.convert import convert_tool_response
from ors.types import RewardSpec, TerminalToolSpec, ToolSpec


class AsyncEnvironment(Bound):
    """One environment of a server: its splits, tasks, tools and sessions."""

    def __init__(self, name: str, client: RemoteServer, api_key: str | None = None) -> None:
        self.name = name
        self.client = client
        self.api_key = api_key or client.api_key

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    async def list_splits(self) -> list[str]:
        """The names of the splits.

        Raises:
            TransportError, ResponseError: as do all methods of this class.
        """
        return [field(split, "name", str) for split in items(await self._ask(SPLITS), Mapping, "splits")]

    async def list_tasks(self, split: str) -> list[Task]:
        """All tasks of a split at once; `tasks()` fetches them as they are needed."""
        return self._tasks(await self._ask(TASKS, {"split": split}))

    async def num_tasks(self, split: str) -> int:
        """The number of tasks in a split."""
        count: int = field(await self._ask(NUM_TASKS, {"split": split}), "num_tasks", int)
        return count

    async def get_task(self, split: str, index: int) -> Task:
        """One task of a split."""
        answer = await self._ask(TASK, {"split": split, "index": index})
        return self._task(answer, field(answer, "task", Mapping))

    async def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[Task]:
        """The tasks `start` to `stop` of a split, as a Python slice: negative indices count from the end."""
        return self._tasks(await self._ask(TASK_RANGE, {"split": split, "start": start, "stop": stop}))

    async def tasks(self, split: str, *, page_size: int | None = None) -> AsyncIterator[Task]:
        """Iterates over the tasks of a split, fetched in pages as they are needed."""
        size = page_size or self.client.options.page_size
        total = await self.num_tasks(split)
        for start in range(0, total, size):
            for task in await self.get_task_range(split, start, min(start + size, total)):
                yield task

    @overload
    async def list_tools(self, format: None = None, *, terminal: bool = False) -> list[ToolSpec]: ...

    @overload
    async def list_tools(self, format: Provider, *, terminal: bool = False) -> list[dict[str, Any]]: ...

    async def list_tools(
        self, format: Provider | None = None, *, terminal: bool = False
    ) -> list[ToolSpec] | list[dict[str, Any]]:
        """The tools that all tasks share, as `ToolSpec` or in a provider's format.

        The `@terminal` tool is among them only if `terminal` is set.
        """
        return convert_tool_response(tools(await self._ask(TOOLS), terminal=terminal), format)

    async def terminal_tool(self) -> TerminalToolSpec | None:
        """The `@terminal` tool, which takes the agent's last message; None if there is none."""
        return terminal_tool(await self._ask(TOOLS))

    async def required_secrets(self) -> list[str]:
        """The names of the secrets without which the server creates no session."""
        return required_secrets(object_of(await self._ask(TOOLS)))

    async def reward_spec(self) -> RewardSpec:
        """What the environment declares of its rewards: their range, and what each name means."""
        return reward_spec(object_of(await self._ask(TOOLS)))

    async def description(self, *, counts: bool = True) -> Mapping[str, Any] | None:
        """What the environment says about itself; None if its server does not tell.

        The keys are those of `GET /-/environments/{name}`. With `counts` unset, tasks are not counted.
        """
        query = "" if counts else "?counts=false"
        endpoint = replace(DESCRIPTION, name=f"{DESCRIPTION.name}/{quote(self.name)}{query}")
        try:
            return object_of(await self._ask(endpoint))
        except ResponseError:  # another package, an older version of this one, or a proxy in between
            return None

    async def is_assistant_message_final(self) -> bool:
        """Whether there is a `@terminal` tool, so that a message without tool calls ends the episode."""
        return await self.terminal_tool() is not None

    def session(
        self,
        task: Task | str | None = None,
        secrets: Mapping[str, str] | int | None = None,
        *,
        split: str | None = None,
        index: int | None = None,
    ) -> AsyncSession:
        """A new session for a task, given whole or by split and index. `async with` or `start()` opens it.

        `session("train", 0)` is the same as `session(split="train", index=0)`.
        """
        if isinstance(task, str):
            split, task = task, None
        if isinstance(secrets, int):
            index, secrets = secrets, None
        if not isinstance(task, Task | None):
            raise TypeError('session() takes a Task, or a split and an index, as in session("train", 0)')
        return AsyncSession(self, task, secrets, self.api_key, split, index)

    def attach(self, sid: str) -> AsyncSession:
        """The session of that id, which was started before, by this process or another one."""
        return AsyncSession(self, api_key=self.api_key, sid=sid)

    async def _ask(self, endpoint: Endpoint, body: Mapping[str, Any] | None = None) -> Any:
        return await self.client.ask(
            endpoint, self.name, headers=self.client.headers(self.api_key), body=body
        )

    def _tasks(self, answer: Any) -> list[Task]:
        return [self._task(answer, spec) for spec in items(field(answer, "tasks"), Mapping, "tasks")]

    def _task(self, answer: Mapping[str, Any], spec: Any) -> Task:
        name = field(answer, "env_name", str) if answer.get("env_name") is not None else ""
        return Task(environment_name=name or self.name, task_spec=spec)
