"""AsyncORS, and the environments of a server."""

import os
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, Self, overload
from urllib.parse import urlsplit

from ors._protocol import (
    API_KEY_VARIABLE,
    HEALTH,
    LIST_ENVIRONMENTS,
    NUM_TASKS,
    SPLITS,
    TASK,
    TASK_RANGE,
    TASKS,
    TOOLS,
    Endpoint,
)
from ors.client.bound import Bound
from ors.client.decode import Task, field, items, object_of, required_secrets, terminal_tool, tools
from ors.client.options import Options
from ors.client.server import RemoteServer
from ors.client.sessions.keepalive import KeepAlive
from ors.client.sessions.session import AsyncSession
from ors.client.transports.base import Transport
from ors.client.transports.http import DirectTransport
from ors.client.transports.proxy import ProxiedTransport
from ors.client.transports.urls import proxy_of
from ors.providers import Provider
from ors.providers.convert import convert_tool_response
from ors.types import TerminalToolSpec, ToolSpec

DEFAULT_BASE_URL = "http://localhost:8080"


class AsyncORS(Bound):
    """A client of ORS servers. Make one and share it: all its sessions share its connections."""

    def __init__(
        self,
        base_url: str = DEFAULT_BASE_URL,
        api_key: str | None = None,
        *,
        options: Options | None = None,
        transport: Transport | None = None,
    ) -> None:
        self.base_url = base_url
        self._given_key = api_key
        self.api_key = api_key or _key_of(base_url)
        self._options = options or Options()
        self._keepalive = KeepAlive(self._options)
        self._remotes: dict[str, RemoteServer] = {}
        self._remote(base_url, transport)

    @property
    def environments(self) -> Self:
        """The client itself."""  # ors-sdk 0.1.0: client.environments.get(name)
        return self

    def environment(self, name: str) -> "AsyncEnvironment":
        """The environment of that name."""
        return self.get(name)

    def get(self, name: str, base_url: str | None = None) -> "AsyncEnvironment":
        """The environment of that name, at `base_url` if it is on another server than the client's."""
        return AsyncEnvironment(name, self._remote(base_url or self.base_url))

    async def list_environments(self) -> list[str]:
        """The names of all environments of the server.

        Raises:
            ResponseError: the server refused.
            TransportError: the server was not reached.
        """
        return items(await self._remote(self.base_url).ask(LIST_ENVIRONMENTS), str, "environments")

    async def health(self) -> dict[str, Any]:
        """The health of the server: `{"status": "ok"}`.

        Raises:
            TransportError, ResponseError: it is not healthy.
        """
        return dict(object_of(await self._remote(self.base_url).ask(HEALTH)))

    def _remote(self, base_url: str, transport: Transport | None = None) -> RemoteServer:
        remote = self._remotes.get(base_url)
        if remote is None:
            transport = transport or http_transport(base_url, self._options)
            remote = RemoteServer(
                transport, self._options, self._keepalive, self._given_key or _key_of(base_url)
            )
            self._remotes[base_url] = remote
        return remote

    async def close(self) -> None:
        """Closes all connections. Sessions that are still open expire on their server."""
        for remote in self._remotes.values():
            await remote.background_done()
        await self._keepalive.close()
        for remote in self._remotes.values():
            await remote.transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()


AsyncEnvironmentsAPI = AsyncORS  # ors-sdk 0.1.0: its type of `client.environments`


def _key_of(base_url: str) -> str | None:
    """The API key for a server, from the variables of the process: its own one, or that of all servers."""
    server = urlsplit(base_url).netloc.upper()
    own = [re.sub(r"\W", "_", f"{API_KEY_VARIABLE}_{name}") for name in (server, server.rpartition(":")[0])]
    return next((key for name in (*own, API_KEY_VARIABLE) if (key := os.getenv(name))), None)


def http_transport(base_url: str, options: Options | None = None) -> Transport:
    """The transport to the server at `base_url`: direct, or through the proxy in the environment variables.

    Raises:
        ValueError: `base_url` or the URL of the proxy is not valid.
    """
    options = options or Options()
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"base_url must be like http://host:port, not {base_url!r}")
    proxy = proxy_of(parts)  # once, since it takes longer than a request
    return ProxiedTransport(parts, proxy, options) if proxy else DirectTransport(parts, options)


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
