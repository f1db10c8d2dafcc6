"""One environment of a server."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from ors._protocol import DESCRIPTION, NUM_TASKS, SPLITS, TASK, TASK_RANGE, TASKS, TOOLS, Endpoint
from ors.client.requests.decode import HasTools, Task, field, items, object_of, reward_spec
from ors.client.requests.server import RemoteServer
from ors.client.sessions.session import AsyncSession
from ors.client.transports.base import Bound
from ors.errors import ResponseError
from ors.types import RewardSpec


class AsyncEnvironment(HasTools, Bound):
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
        """All tasks of a split at once; `tasks()` fetches them as needed."""
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
        """Iterates over the tasks of a split, fetched in pages as needed."""
        size = page_size or self.client.options.page_size
        total = await self.num_tasks(split)
        for start in range(0, total, size):
            for task in await self.get_task_range(split, start, min(start + size, total)):
                yield task

    async def required_secrets(self) -> list[str]:
        """The names of the secrets without which the server creates no session."""
        found = object_of(await self._tools()).get("required_secrets")
        return [] if found is None else items(found, str, "names of secrets")

    async def reward_spec(self) -> RewardSpec:
        """What the environment declares about its rewards: their range, and what each name means."""
        return reward_spec(object_of(await self._tools()))

    async def description(self, *, counts: bool = True) -> Mapping[str, Any] | None:
        """The description of the environment; None if its server has none.

        The keys are those of `GET /-/environments/{name}`. With `counts` unset, tasks are not counted.
        """
        query = "" if counts else "?counts=false"
        endpoint = replace(DESCRIPTION, name=f"{DESCRIPTION.name}/{quote(self.name)}{query}")
        try:
            return object_of(await self._ask(endpoint))
        except ResponseError:  # another package, an older version of this one, or a proxy in between
            return None

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
        """The session with that id, which this process or another one started before."""
        return AsyncSession(self, api_key=self.api_key, sid=sid)

    async def _tools(self) -> Any:
        return await self._ask(TOOLS)

    async def _ask(self, endpoint: Endpoint, body: Mapping[str, Any] | None = None) -> Any:
        return await self.client.ask(
            endpoint, self.name, headers=self.client.headers(self.api_key), body=body
        )

    def _tasks(self, answer: Any) -> list[Task]:
        return [self._task(answer, spec) for spec in items(field(answer, "tasks"), Mapping, "tasks")]

    def _task(self, answer: Mapping[str, Any], spec: Any) -> Task:
        name = field(answer, "env_name", str) if answer.get("env_name") is not None else ""
        return Task(environment_name=name or self.name, task_spec=spec)
