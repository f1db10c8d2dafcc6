"""The client without `await`: each class wraps its async one, run on a background event loop."""

from collections.abc import Iterator, Mapping
from typing import Any, Self, overload

from ors.client.client import DEFAULT_BASE_URL, AsyncORS
from ors.client.portal import Portal
from ors.client.requests.decode import SessionScore, Task
from ors.client.sessions.environment import AsyncEnvironment
from ors.client.sessions.session import AsyncSession
from ors.client.transports.base import Bound, Transport
from ors.client.transports.multiplexed import OnTaskId
from ors.client.transports.options import Options
from ors.providers import Provider
from ors.types import Blocks, JSONObject, RewardSpec, TerminalToolSpec, ToolOutput, ToolSpec


class _HasTools:
    """Whatever lists tools: an environment, or a session."""

    wrapped: AsyncEnvironment | AsyncSession
    portal: Portal

    @overload
    def list_tools(self, format: None = None, *, terminal: bool = False) -> list[ToolSpec]: ...

    @overload
    def list_tools(self, format: Provider, *, terminal: bool = False) -> list[dict[str, Any]]: ...

    def list_tools(
        self, format: Provider | None = None, *, terminal: bool = False
    ) -> list[ToolSpec] | list[dict[str, Any]]:
        """The tools: see `AsyncEnvironment.list_tools`."""

        async def listed() -> list[ToolSpec] | list[dict[str, Any]]:
            return await self.wrapped.list_tools(format, terminal=terminal)

        return self.portal.run(listed)

    def terminal_tool(self) -> TerminalToolSpec | None:
        """The `@terminal` tool: see `AsyncEnvironment.terminal_tool`."""
        return self.portal.run(self.wrapped.terminal_tool)

    def is_assistant_message_final(self) -> bool:
        """Whether a message ends the episode: see `AsyncEnvironment.is_assistant_message_final`."""
        return self.portal.run(self.wrapped.is_assistant_message_final)


class Session(_HasTools, Bound):
    """One episode: `AsyncSession` without `await`."""

    def __init__(self, async_session: AsyncSession, loop: Portal) -> None:
        self.wrapped: AsyncSession = async_session
        self.portal = loop

    def __repr__(self) -> str:
        return repr(self.wrapped).replace("AsyncSession", "Session")

    @property
    def sid(self) -> str | None:
        """The session's id, once it is open."""
        return self.wrapped.sid

    @property
    def task(self) -> Task | None:
        """The task, if it was given whole."""
        return self.wrapped.task

    @property
    def split(self) -> str | None:
        """The split of the task, if it was given by split and index."""
        return self.wrapped.split

    @property
    def index(self) -> int | None:
        """The index of the task, if it was given by split and index."""
        return self.wrapped.index

    def start(self) -> Self:
        """Opens the session: see `AsyncSession.start`."""
        undo = None if self.wrapped.kept else self.wrapped._abandon
        self.portal.run(self.wrapped.start, undo=undo)
        return self

    def close(self) -> None:
        """Ends the session on the server: see `AsyncSession.close`."""
        self.wrapped._remote.entered.add(self.wrapped)
        self.portal.run(self.wrapped.close, undo=self.wrapped._end)

    def __enter__(self) -> Self:
        self.wrapped._remote.entered.add(self.wrapped)
        return self.start()

    def __exit__(self, *raised: object) -> None:
        self.portal.run(lambda: self.wrapped.__aexit__(*raised), undo=self.wrapped._abandon)

    def messages(self, format: Provider) -> list[dict[str, Any]]:
        """The prompt, calls and results as messages: see `AsyncSession.messages`."""
        return self.portal.run(lambda: self.wrapped.messages(format))

    def ping(self) -> None:
        """Asks the server whether the session exists: see `AsyncSession.ping`."""
        self.portal.run(self.wrapped.ping)

    def get_prompt(self) -> Blocks:
        """The prompt of the task: see `AsyncSession.get_prompt`."""
        return self.portal.run(self.wrapped.get_prompt)

    def mcp_url(self) -> str:
        """The URL for MCP clients: see `AsyncSession.mcp_url`."""
        return self.portal.run(self.wrapped.mcp_url)

    def score(self) -> SessionScore:
        """The rewards of all calls so far: see `AsyncSession.score`."""
        return self.portal.run(self.wrapped.score)

    def call_terminal_tool(self, message: str = "", *, on_task_id: OnTaskId | None = None) -> ToolOutput:
        """Calls the `@terminal` tool: see `AsyncSession.call_terminal_tool`."""
        return self.portal.run(lambda: self.wrapped.call_terminal_tool(message, on_task_id=on_task_id))

    def call_tool(
        self,
        tool_name: str,
        input: JSONObject = {},  # noqa: B006 - never changed, and the signature of ors-sdk 0.1.0
        *,
        on_task_id: OnTaskId | None = None,
        call_id: str | None = None,
    ) -> ToolOutput:
        """Calls a tool: see `AsyncSession.call_tool`. `on_task_id` is called on another thread."""
        call = self.wrapped.call_tool
        return self.portal.run(lambda: call(tool_name, input, on_task_id=on_task_id, call_id=call_id))

    def rejoin(self, task_id: str) -> ToolOutput:
        """Waits for the result of an earlier call: see `AsyncSession.rejoin`."""
        return self.portal.run(lambda: self.wrapped.rejoin(task_id))

    def fork(self, n: int) -> "list[Session]":
        """New sessions that continue from the state of this one: see `AsyncSession.fork`."""
        made: list[AsyncSession] = []

        async def forked() -> None:
            made.extend(await self.wrapped.fork(n))

        def undo() -> None:
            for session in made:
                session._abandon()

        self.portal.run(forked, undo=undo)
        return [Session(session, self.portal) for session in made]


class Environment(_HasTools, Bound):
    """One environment of a server: `AsyncEnvironment` without `await`."""

    def __init__(self, async_env: AsyncEnvironment, loop: Portal) -> None:
        self.wrapped: AsyncEnvironment = async_env
        self.portal = loop

    def __repr__(self) -> str:
        return repr(self.wrapped).replace("AsyncEnvironment", "Environment")

    @property
    def name(self) -> str:
        """The environment's name."""
        return self.wrapped.name

    def list_splits(self) -> list[str]:
        """The names of the splits: see `AsyncEnvironment.list_splits`."""
        return self.portal.run(self.wrapped.list_splits)

    def list_tasks(self, split: str) -> list[Task]:
        """All tasks of a split at once: see `AsyncEnvironment.list_tasks`."""
        return self.portal.run(lambda: self.wrapped.list_tasks(split))

    def num_tasks(self, split: str) -> int:
        """The number of tasks in a split: see `AsyncEnvironment.num_tasks`."""
        return self.portal.run(lambda: self.wrapped.num_tasks(split))

    def get_task(self, split: str, index: int) -> Task:
        """One task of a split: see `AsyncEnvironment.get_task`."""
        return self.portal.run(lambda: self.wrapped.get_task(split, index))

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[Task]:
        """A slice of the tasks of a split: see `AsyncEnvironment.get_task_range`."""
        return self.portal.run(lambda: self.wrapped.get_task_range(split, start, stop))

    def tasks(self, split: str, *, page_size: int | None = None) -> Iterator[Task]:
        """Iterates over the tasks of a split: see `AsyncEnvironment.tasks`."""
        return self.portal.iterate(self.wrapped.tasks(split, page_size=page_size))

    def required_secrets(self) -> list[str]:
        """The names of the secrets that it needs: see `AsyncEnvironment.required_secrets`."""
        return self.portal.run(self.wrapped.required_secrets)

    def reward_spec(self) -> RewardSpec:
        """What the environment declares about its rewards: see `AsyncEnvironment.reward_spec`."""
        return self.portal.run(self.wrapped.reward_spec)

    def description(self, *, counts: bool = True) -> Mapping[str, Any] | None:
        """The description of the environment: see `AsyncEnvironment.description`."""
        return self.portal.run(lambda: self.wrapped.description(counts=counts))

    def session(
        self,
        task: Task | str | None = None,
        secrets: Mapping[str, str] | int | None = None,
        *,
        split: str | None = None,
        index: int | None = None,
    ) -> Session:
        """A new session for a task: see `AsyncEnvironment.session`."""
        return Session(self.wrapped.session(task, secrets, split=split, index=index), self.portal)

    def attach(self, sid: str) -> Session:
        """The session with that id, which was started before: see `AsyncEnvironment.attach`."""
        return Session(self.wrapped.attach(sid), self.portal)


class ORS(Bound):
    """A client of ORS servers. Make one and share it, even between threads: all share its connections."""

    def __init__(
        self,
        base_url: str = DEFAULT_BASE_URL,
        api_key: str | None = None,
        *,
        options: Options | None = None,
        transport: Transport | None = None,
    ) -> None:
        self.wrapped = AsyncORS(base_url, api_key, options=options, transport=transport)
        self.portal = Portal(self.wrapped.close)

    @property
    def base_url(self) -> str:
        """The address of the server."""
        return self.wrapped.base_url

    @property
    def api_key(self) -> str | None:
        """The API key, if there is one."""
        return self.wrapped.api_key

    @property
    def environments(self) -> Self:
        """The client itself."""  # ors-sdk 0.1.0: client.environments.get(name)
        return self

    def environment(self, name: str) -> Environment:
        """The environment of that name."""
        return self.get(name)

    def get(self, name: str, base_url: str | None = None) -> Environment:
        """The environment of that name: see `AsyncORS.get`."""
        return Environment(self.wrapped.get(name, base_url), self.portal)

    def list_environments(self) -> list[str]:
        """The names of all environments of the server: see `AsyncORS.list_environments`."""
        return self.portal.run(self.wrapped.list_environments)

    def health(self) -> dict[str, Any]:
        """The health of the server: see `AsyncORS.health`."""
        return self.portal.run(self.wrapped.health)

    def close(self) -> None:
        """Closes all connections and stops the background loop. Open sessions expire on their server."""
        self.portal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


EnvironmentsAPI = ORS  # ors-sdk 0.1.0: its type of `client.environments`
