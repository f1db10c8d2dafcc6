"""The client without `await`: each class wraps its async one, run on a background event loop."""

from collections.abc import Iterator, Mapping
from typing import Any, Self, overload

from ors.client.client import DEFAULT_BASE_URL, AsyncORS
from ors.client.portal import Portal
from ors.client.requests.decode import Task
from ors.client.sessions.call import OnTaskId
from ors.client.sessions.environment import AsyncEnvironment
from ors.client.sessions.session import AsyncSession
from ors.client.transports.base import Bound, Transport
from ors.client.transports.options import Options
from ors.providers import Provider
from ors.types import Blocks, JSONObject, TerminalToolSpec, ToolOutput, ToolSpec


class Session(Bound):
    """One episode: `AsyncSession` without `await`."""

    def __init__(self, async_session: AsyncSession, loop: Portal) -> None:
        self._async = async_session
        self._loop = loop

    def __repr__(self) -> str:
        return repr(self._async).replace("AsyncSession", "Session")

    @property
    def sid(self) -> str | None:
        """The session's id, once it is open."""
        return self._async.sid

    @property
    def task(self) -> Task | None:
        """The task, if it was given whole."""
        return self._async.task

    @property
    def split(self) -> str | None:
        """The split of the task, if it was given by split and index."""
        return self._async.split

    @property
    def index(self) -> int | None:
        """The index of the task, if it was given by split and index."""
        return self._async.index

    def start(self) -> Self:
        """Opens the session: see `AsyncSession.start`."""
        undo = None if self._async.kept else self._async._abandon
        self._loop.run(self._async.start, undo=undo)
        return self

    def close(self) -> None:
        """Ends the session on the server: see `AsyncSession.close`."""
        self._async._remote.entered.add(self._async)
        self._loop.run(self._async.close, undo=self._async._end)

    def __enter__(self) -> Self:
        self._async._remote.entered.add(self._async)
        return self.start()

    def __exit__(self, *raised: object) -> None:
        self._loop.run(lambda: self._async.__aexit__(*raised), undo=self._async._abandon)

    def messages(self, format: Provider) -> list[dict[str, Any]]:
        """The prompt, calls and results as messages: see `AsyncSession.messages`."""
        return self._loop.run(lambda: self._async.messages(format))

    def ping(self) -> None:
        """Asks the server whether the session exists: see `AsyncSession.ping`."""
        self._loop.run(self._async.ping)

    def get_prompt(self) -> Blocks:
        """The prompt of the task: see `AsyncSession.get_prompt`."""
        return self._loop.run(self._async.get_prompt)

    @overload
    def list_tools(self, format: None = None, *, terminal: bool = False) -> list[ToolSpec]: ...

    @overload
    def list_tools(self, format: Provider, *, terminal: bool = False) -> list[dict[str, Any]]: ...

    def list_tools(
        self, format: Provider | None = None, *, terminal: bool = False
    ) -> list[ToolSpec] | list[dict[str, Any]]:
        """The tools of this task: see `AsyncSession.list_tools`."""

        async def listed() -> list[ToolSpec] | list[dict[str, Any]]:
            return await self._async.list_tools(format, terminal=terminal)

        return self._loop.run(listed)

    def terminal_tool(self) -> TerminalToolSpec | None:
        """The `@terminal` tool: see `AsyncSession.terminal_tool`."""
        return self._loop.run(self._async.terminal_tool)

    def is_assistant_message_final(self) -> bool:
        """Whether a message ends the episode: see `AsyncSession.is_assistant_message_final`."""
        return self._loop.run(self._async.is_assistant_message_final)

    def call_terminal_tool(self, message: str = "", *, on_task_id: OnTaskId | None = None) -> ToolOutput:
        """Calls the `@terminal` tool: see `AsyncSession.call_terminal_tool`."""
        return self._loop.run(lambda: self._async.call_terminal_tool(message, on_task_id=on_task_id))

    def call_tool(
        self,
        tool_name: str,
        input: JSONObject = {},  # noqa: B006 - never changed, and the signature of ors-sdk 0.1.0
        *,
        on_task_id: OnTaskId | None = None,
        call_id: str | None = None,
    ) -> ToolOutput:
        """Calls a tool: see `AsyncSession.call_tool`. `on_task_id` is called on another thread."""
        call = self._async.call_tool
        return self._loop.run(lambda: call(tool_name, input, on_task_id=on_task_id, call_id=call_id))

    def rejoin(self, task_id: str) -> ToolOutput:
        """Waits for the result of an earlier call: see `AsyncSession.rejoin`."""
        return self._loop.run(lambda: self._async.rejoin(task_id))

    def fork(self, n: int) -> "list[Session]":
        """New sessions that go on from where this one stands: see `AsyncSession.fork`."""
        made: list[AsyncSession] = []

        async def forked() -> None:
            made.extend(await self._async.fork(n))

        def undo() -> None:
            for session in made:
                session._abandon()

        self._loop.run(forked, undo=undo)
        return [Session(session, self._loop) for session in made]


class Environment(Bound):
    """One environment of a server: `AsyncEnvironment` without `await`."""

    def __init__(self, async_env: AsyncEnvironment, loop: Portal) -> None:
        self._async = async_env
        self._loop = loop

    def __repr__(self) -> str:
        return repr(self._async).replace("AsyncEnvironment", "Environment")

    @property
    def name(self) -> str:
        """The environment's name."""
        return self._async.name

    def list_splits(self) -> list[str]:
        """The names of the splits: see `AsyncEnvironment.list_splits`."""
        return self._loop.run(self._async.list_splits)

    def list_tasks(self, split: str) -> list[Task]:
        """All tasks of a split at once: see `AsyncEnvironment.list_tasks`."""
        return self._loop.run(lambda: self._async.list_tasks(split))

    def num_tasks(self, split: str) -> int:
        """The number of tasks in a split: see `AsyncEnvironment.num_tasks`."""
        return self._loop.run(lambda: self._async.num_tasks(split))

    def get_task(self, split: str, index: int) -> Task:
        """One task of a split: see `AsyncEnvironment.get_task`."""
        return self._loop.run(lambda: self._async.get_task(split, index))

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[Task]:
        """A slice of the tasks of a split: see `AsyncEnvironment.get_task_range`."""
        return self._loop.run(lambda: self._async.get_task_range(split, start, stop))

    def tasks(self, split: str, *, page_size: int | None = None) -> Iterator[Task]:
        """Iterates over the tasks of a split: see `AsyncEnvironment.tasks`."""
        return self._loop.iterate(self._async.tasks(split, page_size=page_size))

    @overload
    def list_tools(self, format: None = None, *, terminal: bool = False) -> list[ToolSpec]: ...

    @overload
    def list_tools(self, format: Provider, *, terminal: bool = False) -> list[dict[str, Any]]: ...

    def list_tools(
        self, format: Provider | None = None, *, terminal: bool = False
    ) -> list[ToolSpec] | list[dict[str, Any]]:
        """The tools that all tasks share: see `AsyncEnvironment.list_tools`."""

        async def listed() -> list[ToolSpec] | list[dict[str, Any]]:
            return await self._async.list_tools(format, terminal=terminal)

        return self._loop.run(listed)

    def terminal_tool(self) -> TerminalToolSpec | None:
        """The `@terminal` tool: see `AsyncEnvironment.terminal_tool`."""
        return self._loop.run(self._async.terminal_tool)

    def required_secrets(self) -> list[str]:
        """The names of the secrets that it needs: see `AsyncEnvironment.required_secrets`."""
        return self._loop.run(self._async.required_secrets)

    def is_assistant_message_final(self) -> bool:
        """Whether a message ends the episode: see `AsyncEnvironment.is_assistant_message_final`."""
        return self._loop.run(self._async.is_assistant_message_final)

    def session(
        self,
        task: Task | str | None = None,
        secrets: Mapping[str, str] | int | None = None,
        *,
        split: str | None = None,
        index: int | None = None,
    ) -> Session:
        """A new session for a task: see `AsyncEnvironment.session`."""
        return Session(self._async.session(task, secrets, split=split, index=index), self._loop)

    def attach(self, sid: str) -> Session:
        """The session of that id, which was started before: see `AsyncEnvironment.attach`."""
        return Session(self._async.attach(sid), self._loop)


class ORS(Bound):
    """A client of ORS servers. Make one and share it, also between threads: all share its connections."""

    def __init__(
        self,
        base_url: str = DEFAULT_BASE_URL,
        api_key: str | None = None,
        *,
        options: Options | None = None,
        transport: Transport | None = None,
    ) -> None:
        self._async = AsyncORS(base_url, api_key, options=options, transport=transport)
        self._loop = Portal(self._async.close)

    @property
    def base_url(self) -> str:
        """The address of the server."""
        return self._async.base_url

    @property
    def api_key(self) -> str | None:
        """The API key, if there is one."""
        return self._async.api_key

    @property
    def environments(self) -> Self:
        """The client itself."""  # ors-sdk 0.1.0: client.environments.get(name)
        return self

    def environment(self, name: str) -> Environment:
        """The environment of that name."""
        return self.get(name)

    def get(self, name: str, base_url: str | None = None) -> Environment:
        """The environment of that name: see `AsyncORS.get`."""
        return Environment(self._async.get(name, base_url), self._loop)

    def list_environments(self) -> list[str]:
        """The names of all environments of the server: see `AsyncORS.list_environments`."""
        return self._loop.run(self._async.list_environments)

    def health(self) -> dict[str, Any]:
        """The health of the server: see `AsyncORS.health`."""
        return self._loop.run(self._async.health)

    def close(self) -> None:
        """Closes all connections and stops the background loop. Open sessions expire on their server."""
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


EnvironmentsAPI = ORS  # ors-sdk 0.1.0: its type of `client.environments`
