"""The base classes of openreward over ours: with a server, and without one."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

import ors.testing
from ors.errors import InvalidEnvironment, ToolCallError
from ors.openreward.environments import Environment, Server, Toolset, terminal, tool
from ors.openreward.sandboxes import RunResult
from ors.types import RunToolError, TextBlock, ToolOutput
from tests.support.live_server import serving
from tests.support.raw_http import Raw


class Answer(BaseModel):
    answer: str


class Desk(Environment):
    """Counts its running calls; `submit` notes whether it ran alone."""

    def __init__(self, task_spec: Any = None, secrets: Any = None) -> None:
        super().__init__(task_spec or {}, secrets or {})
        self.running = 0
        self.alone: list[bool] = []
        self.both = asyncio.Event()

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, Any]]:
        return [{}]

    def get_prompt(self) -> list[TextBlock]:
        return [TextBlock("Begin.")]

    @tool(concurrent=True)
    async def look(self) -> ToolOutput:
        """Waits until two of these run."""
        self.running += 1
        if self.running == 2:
            self.both.set()
        await self.both.wait()
        self.running -= 1
        return ToolOutput([])

    @tool(exclusive=True, concurrent=True)
    async def submit(self, params: Answer) -> ToolOutput:
        """Ends the episode with "end"."""
        before = self.running
        await asyncio.sleep(0)
        self.alone.append(before == self.running == 0)
        return ToolOutput([], reward=1.0, finished=params.answer == "end")

    @terminal
    @tool
    async def said(self, params: Answer) -> ToolOutput:
        """The last message."""
        return ToolOutput([TextBlock(params.answer)], reward=0.5, finished=True)


async def test_without_a_server_an_episode_has_one_end_too() -> None:
    env = Desk()
    results = [(await env._call_tool("submit", {"answer": "end"})).root for _ in range(2)]
    assert [result.ok for result in results] == [True, False]
    last = results[-1]
    assert isinstance(last, RunToolError)
    assert last.reason == "episode_finished"


async def test_an_exclusive_tool_overlaps_with_no_call_of_a_session() -> None:
    async with ors.testing.session(Desk, split="train", index=0) as session:
        looks = [asyncio.create_task(session.call_tool("look", {})) for _ in range(2)]
        await session.call_tool("submit", {"answer": ""})
        await asyncio.gather(*looks)
        done = await session.call_tool("submit", {"answer": "end"})
        assert (done.reward, done.finished) == (1.0, True)
        with pytest.raises(ToolCallError):
            await session.call_tool("look", {})


async def test_a_terminal_tool_is_known_to_the_class_and_called_with_a_message() -> None:
    spec = Desk.terminal_tool()
    assert spec is not None
    assert (spec.name, spec.arg, Desk.is_assistant_message_final()) == ("said", "answer", True)
    env = Desk()
    assert (await env.call_terminal_tool("bye")).root.ok
    assert not (await env.call_terminal_tool("again")).root.ok  # the episode has one end


def test_the_secrets_that_a_constructor_requires_are_read_from_its_source() -> None:
    class Judged(Desk):
        def __init__(self, task_spec: Any = None, secrets: Any = {}) -> None:  # noqa: B006
            super().__init__(task_spec, secrets)
            key = secrets.get("openai_api_key")
            if not key:
                raise ValueError("needs a key")
            platform = secrets.get("api_key")
            if not platform:
                raise ValueError("needs the platform's key")
            self.other = secrets.get("optional")

    assert Judged.required_secrets == ["openai_api_key"]  # that of the platform is given by us
    assert Desk.required_secrets == []


class Shell(Toolset):
    @tool
    async def run(self) -> ToolOutput:
        """Runs."""
        return ToolOutput([TextBlock(self.sandbox)])


async def test_a_toolset_has_the_sandbox_of_its_environment() -> None:
    class Boxed(Desk):
        toolsets = [Shell]

    env = Boxed()
    with pytest.raises(ValueError, match=r"Shell requires `env\.sandbox`"):
        await env._call_tool("run", {})
    env.sandbox = "the box"  # type: ignore[attr-defined]
    assert (await env._call_tool("run", {})).root.output.blocks[0].text == "the box"  # type: ignore[union-attr]
    assert (Shell.name(), Shell(env, sandbox_attr="sandbox").sandbox) == ("Shell", "the box")


class Box:
    """As far as a shell asks a sandbox."""

    async def run(self, command: str, **_: Any) -> RunResult:
        return RunResult(f"ran {command}", 0)


class Boxed(Desk):
    toolsets = [Shell]

    def __init__(self, task_spec: Any = None, secrets: Any = None) -> None:
        super().__init__(task_spec, secrets)
        self.sandbox = Box()

    @tool
    async def bash(self) -> ToolOutput:
        """The environment's own."""
        return ToolOutput([TextBlock("own")])

    @tool
    async def own_bash(self) -> ToolOutput:
        """Calls the environment's own, whatever the agent sees."""
        return await self.bash()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("toolset", "more"),
    [
        ("codex", set()),
        ("claude-code", {"glob", "grep", "read", "write", "edit", "todo_write"}),
        ("cli", {"glob", "grep", "ls", "read", "write", "edit", "multi_edit", "todo_write"}),
        ("web", {"web_search", "web_fetch"}),
    ],
)
def test_a_session_has_the_toolset_that_its_client_asks_for(toolset: str, more: set[str]) -> None:
    own = {"look", "submit", "run", "bash", "own_bash"}
    with serving(Server([Boxed])) as url:
        raw, sid = Raw(url), "asks for a toolset"
        raw.post("/create", {"task_spec": {}, "toolset_name": toolset}, sid=sid)
        tools = raw.get("/boxed/task_tools", sid=sid).json()["tools"]
        assert sorted(each["name"] for each in tools) == sorted(own | more)
        shell = {"command": "ls"} if toolset != "web" else {}
        bash = raw.call(sid, "bash", shell, env="boxed").result()["output"]["blocks"][0]["text"]
        assert bash == ("own" if toolset == "web" else "ran ls\n\n(exit 0)")
        inner = raw.call(sid, "own_bash", {}, env="boxed").result()["output"]["blocks"][0]["text"]
        assert inner == "own"
        plain = raw.get("/boxed/task_tools", sid=raw.session("boxed")).json()["tools"]
        assert {each["name"] for each in plain} == own


def test_a_toolset_that_is_not_offered_is_refused_by_name() -> None:
    with serving(Server([Boxed])) as url:
        refused = Raw(url).post("/create", {"task_spec": {}, "toolset_name": "hermes"}, sid="any")
    assert (refused.status, "hermes" in refused.detail) == (400, True)


@pytest.mark.parametrize("name", ["get_messages", "score_group"])
def test_a_server_refuses_by_name_what_is_not_offered(name: str) -> None:
    other = type("Other", (Desk,), {name: lambda self: []})
    with pytest.raises(InvalidEnvironment, match=f"Other.{name}: ors does not offer {name}"):
        Server([other])
