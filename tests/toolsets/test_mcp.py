"""The tools of an MCP server, written by hand, as tools of an environment."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

import ors.testing
from ors import (
    Blocks,
    Environment,
    ImageBlock,
    ListToolsOutput,
    Server,
    TextBlock,
    ToolOutput,
    tool,
)
from ors.client import ORS, AsyncSession, Options, ToolCallError
from ors.errors import ORSError, ServerFailed, ToolFailed
from ors.rollouts import Failed, play
from ors.sandbox import Pool, SandboxSpec
from ors.toolsets import MCPToolset, SandboxEnvironment
from tests.support import mcp_stdio_server
from tests.support.commands import run
from tests.support.live_server import serving
from tests.support.mcp_stdio_server import PIXEL
from tests.support.raw_http import Raw
from tests.support.scripted_agents import Script, call, calls
from tests.support.waiting import wait_until

SCRIPT = Path(mcp_stdio_server.__file__)


def words(mode: str = "") -> list[str]:
    return [sys.executable, str(SCRIPT), *([mode] if mode else [])]


class Plain(Environment):
    """Has one tool of its own, which ends the episode."""

    tasks: ClassVar[Any] = {"train": [{}]}

    def get_prompt(self) -> str:
        return "Use the tools."

    @tool
    def submit(self) -> ToolOutput:
        """Ends the episode."""
        return ToolOutput("done", reward=1.0, finished=True)


def having(*toolsets: type, **attributes: Any) -> type[Plain]:
    return type("Having", (Plain,), {"toolsets": list(toolsets), **attributes})


@asynccontextmanager
async def opened(*toolsets: type, **attributes: Any) -> AsyncIterator[AsyncSession]:
    async with ors.testing.session(having(*toolsets, **attributes), split="train", index=0) as session:
        yield session


async def text(session: AsyncSession, name: str, **given: Any) -> str:
    block = (await session.call_tool(name, given)).blocks[0]
    assert isinstance(block, TextBlock)
    return block.text


async def failure(toolset: type, *, environment: type[Environment] | None = None) -> str:
    """What a session is told whose setup fails."""
    with pytest.raises(ServerFailed, match="Environment setup failed") as told:
        async with ors.testing.session(environment or having(toolset), split="train", index=0) as session:
            await session.list_tools()
    return str(told.value)


def alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    return False


# ── Listing and calling ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", ["", "modern"])
async def test_tools_of_all_pages_are_listed_with_what_they_take(mode: str) -> None:
    async with opened(MCPToolset(words(mode))) as session:
        listed = {spec.name: spec for spec in await session.list_tools()}
        assert list(listed) == ["submit", *mcp_stdio_server.TOOLS]
        assert listed["echo"].description == "Says it again."
        assert listed["echo"].input_schema == mcp_stdio_server.TEXT
        assert await text(session, "echo", text="hällo\n") == "hällo\n"


async def test_before_a_session_only_the_tools_of_the_class_are_known() -> None:
    async with ors.testing.client(having(MCPToolset(["no-such-program"]))) as client:
        assert [spec.name for spec in await client.environment("having").list_tools()] == ["submit"]


async def test_images_resources_and_structured_content_become_blocks() -> None:
    async with opened(MCPToolset(words())) as session:
        pixel = ImageBlock(data=PIXEL, mimeType="image/png")
        assert (await session.call_tool("picture", {})).blocks == [pixel]
        blocks = (await session.call_tool("resources", {})).blocks
        assert blocks[:2] == [TextBlock(text="inside"), pixel]
        assert [block.text for block in blocks[2:] if isinstance(block, TextBlock)] == [
            "[resource_link file:///c]",
            "[audio audio/wav]",
        ]
        assert await text(session, "structured") == '{"rows":[1,2]}'


async def test_five_megabytes_and_a_flood_on_standard_error_pass() -> None:
    async with opened(MCPToolset(words())) as session:
        assert await text(session, "large") == "x" * 5_000_000
        assert await text(session, "flood") == "still here"
        assert await text(session, "echo", text="y" * 3_000_000) == "y" * 3_000_000


async def test_requests_of_the_server_are_answered() -> None:
    async with opened(MCPToolset(words())) as session:
        ping, sampling = json.loads(await text(session, "asks"))
        assert ping == {"jsonrpc": "2.0", "id": "p", "result": {}}
        assert sampling["id"] == "s"
        assert sampling["error"]["code"] == -32601


async def test_what_the_server_refuses_is_for_the_agent() -> None:
    async with opened(MCPToolset(words())) as session:
        with pytest.raises(ToolCallError, match=r"^not today$"):
            await session.call_tool("refuse", {})
        with pytest.raises(ToolCallError, match=r"^the input is wrong$") as refused:
            await session.call_tool("wrong_input", {})
        assert refused.value.reason == "input_validation"


async def test_an_internal_error_fails_the_call_and_the_session_goes_on() -> None:
    async with opened(MCPToolset(words())) as session:
        with pytest.raises(ToolFailed, match="failed: it broke inside") as failed:
            await session.call_tool("crash_inside", {})
        assert failed.value.reason == "environment"
        assert await text(session, "echo", text="on") == "on"


async def test_each_session_has_a_process_of_its_own() -> None:
    async with ors.testing.client(having(MCPToolset(words()))) as client:
        environment = client.environment("having")
        async with environment.session(split="train", index=0) as one:
            assert [await text(one, "count"), await text(one, "count")] == ["1", "2"]
            async with environment.session(split="train", index=0) as other:
                assert await text(other, "count") == "1"


# ── Names ────────────────────────────────────────────────────────────────────────────────────────


async def test_tools_are_chosen_renamed_and_prefixed() -> None:
    chosen = MCPToolset(words(), only=["count", "echo"], prefix="hand_")
    renamed = MCPToolset(words(), only={"echo": "say"})
    async with opened(chosen, renamed) as session:
        listed = [spec.name for spec in await session.list_tools()]
        assert listed == ["submit", "hand_count", "hand_echo", "say"]
        assert await text(session, "hand_echo", text="a") == "a"
        assert await text(session, "say", text="b") == "b"
        with pytest.raises(ToolCallError, match="'echo' is not a valid tool"):
            await session.call_tool("echo", {"text": "c"})


async def test_a_chosen_tool_that_is_not_there_is_named() -> None:
    told = await failure(MCPToolset(words(), only=["eco"]))
    assert "has no tool 'eco'; it has: echo, count" in told


async def test_two_tools_of_one_name_are_an_error() -> None:
    told = await failure(MCPToolset(words(), only={"echo": "submit"}))
    assert "two tools are named 'submit', of Having and the MCP server" in told
    assert "use only= or prefix=" in told
    both = having(MCPToolset(words(), only=["echo"]), MCPToolset(words(), only=["echo"]))
    assert "two tools are named 'echo'" in await failure(Plain, environment=both)
    twice = MCPToolset(words(), only={"echo": "x", "count": "x"})
    assert "two tools are named 'x'" in await failure(twice)


async def test_a_task_may_have_some_of_the_tools() -> None:
    def list_task_tools(self: Environment) -> ListToolsOutput:
        listed = Environment.list_task_tools(self).tools
        return ListToolsOutput(tools=[spec for spec in listed if spec.name == "count"])

    async with opened(MCPToolset(words()), list_task_tools=list_task_tools) as session:
        assert await text(session, "count") == "1"
        with pytest.raises(ToolCallError, match="'echo' is not a valid tool; the tools are: submit, count"):
            await session.call_tool("echo", {"text": ""})


async def test_a_tool_of_the_environment_can_ask_the_server() -> None:
    class Grading(Plain):
        toolsets = [MCPToolset(words())]

        @tool
        async def grade(self) -> str:
            """Grades."""
            return repr((await self._call_tool("count", {})).root)

    async with ors.testing.session(Grading, split="train", index=0) as session:
        await session.call_tool("count", {})
        assert "text='2'" in await text(session, "grade")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "either command"),
        ({"command": ["a"], "url": "http://x"}, "either command"),
        ({"command": "python server.py"}, "either command"),
        ({"command": []}, "either command"),
        ({"command": ["a"], "headers": {"a": "b"}}, "headers with url"),
        ({"url": "http://x", "sandbox": True}, "go with command"),
        ({"url": "http://x", "env": {"a": "b"}}, "go with command"),
        ({"url": "127.0.0.1:8000/mcp"}, "must begin with http://"),
        ({"command": ["a"], "timeout": 0}, "over 0 seconds"),
    ],
)
def test_arguments_that_do_not_fit_together_are_refused(given: Mapping[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        MCPToolset(**given)


# ── Variables, and values of a session ───────────────────────────────────────────────────────────


async def test_the_program_gets_its_variables_and_no_keys_of_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    async with opened(MCPToolset(words(), env={"MODE": "calm"})) as session:
        seen = json.loads(await text(session, "variables"))
        assert (seen["MODE"], seen["PATH"]) == ("calm", os.environ["PATH"])
        assert "OPENAI_API_KEY" not in seen
        assert seen["folder"] == os.getcwd()


async def test_values_may_depend_on_the_task_and_the_secrets() -> None:
    def command(env: Environment) -> list[str]:
        return words(str(env.task_spec["mode"]))

    toolset = MCPToolset(command, env=lambda env: {"TOKEN": env.secrets["token"]})
    served = having(toolset)
    given = {"token": "t0p-s3cret-value"}
    async with ors.testing.session(served, {"mode": "modern"}, secrets=given) as session:
        assert json.loads(await text(session, "variables"))["TOKEN"] == "t0p-s3cret-value"
    with pytest.raises(ServerFailed, match="cannot find my settings"):
        async with ors.testing.session(served, {"mode": "broken"}, secrets=given) as session:
            await session.list_tools()


# ── Failures ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (words("broken"), "ended (status 1); the end of its stderr:\ncannot find my settings"),
        (["no-such-program"], "the MCP server 'no-such-program' ended (status 127)"),
        pytest.param(words("mute"), "did not answer 'initialize' within 1 s", marks=pytest.mark.long),
        (["echo", "Hello, I am no server"], "sent something that is not MCP: 'Hello, I am no server"),
        (words("bad-tools"), "lists invalid tools"),
        (["python3", "with a zero\0"], "no word of it may contain a zero byte"),
    ],
)
async def test_a_server_that_does_not_start_is_a_failure_of_the_environment(
    command: list[str], told: str
) -> None:
    seconds = 1.0 if "mute" in command else 30.0
    assert told in await failure(MCPToolset(command, timeout=seconds))


async def test_a_cursor_that_comes_again_ends_the_list() -> None:
    async with opened(MCPToolset(words("endless"))) as session:
        assert [spec.name for spec in await session.list_tools()] == ["submit"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("die", "ended (status 3); the end of its stderr:\nfirst line\nout of cheese"),
        ("garbage", "sent something that is not MCP: 'Traceback: oh no"),
        pytest.param("hang", "did not answer 'tools/call' within 0.5 s", marks=pytest.mark.long),
        ("no_result", "sent something that is not MCP"),
        ("odd_content", "invalid content: KeyError('text')"),
    ],
)
async def test_a_server_that_fails_in_a_call_fails_the_session_so_nothing_is_scored(
    name: str, told: str
) -> None:
    toolset = MCPToolset(words())
    async with opened(toolset) as session:
        await session.list_tools()
        if name == "hang":
            toolset._timeout = 0.5  # type: ignore[attr-defined]  # now: it may take long to start
        with pytest.raises(ToolFailed) as failed:
            await session.call_tool(name, {})
        assert told in str(failed.value)
        assert failed.value.reason == "environment"
        with pytest.raises((ToolFailed, ServerFailed)) as refused:
            await session.call_tool("submit", {})
        assert told in str(refused.value)


async def test_an_episode_whose_server_dies_is_failed_by_the_environment() -> None:
    agent = Script(calls(call("die")), calls(call("submit")))
    async with opened(MCPToolset(words())) as session:
        record = await play(session, agent, reward="last")
    assert isinstance(record.outcome, Failed)
    assert record.outcome.who == "environment"
    assert record.reward is None


@pytest.mark.long
async def test_a_call_over_the_limit_of_the_environment_leaves_the_session_alive() -> None:
    async with opened(MCPToolset(words()), limits={"tool_seconds": 2.0}) as session:
        with pytest.raises(ToolFailed, match=r"'hang' exceeded its time limit of 2 s$"):
            await session.call_tool("hang", {})
        assert (await session.call_tool("submit", {})).reward == 1.0


# ── The end ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", ["", pytest.param("stays", marks=pytest.mark.long)])
async def test_all_processes_end_with_the_session(mode: str) -> None:
    async with opened(MCPToolset(words(mode))) as session:
        pids = json.loads(await text(session, "family"))
        assert all(map(alive, pids))
    wait_until(lambda: not any(map(alive, pids)))


SERVING = """
import sys
from ors import Server
from tests.toolsets.test_mcp import MCPToolset, having, words
server = Server([having(MCPToolset(words(sys.argv[1])))])
server.runner(port=0, on_start=lambda url: print(url, flush=True)).run()
"""


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_all_processes_end_with_the_ors_server(how: signal.Signals) -> None:
    pids: list[int] = []
    with subprocess.Popen(
        [sys.executable, "-c", SERVING, "stays"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with (
            contextlib.suppress(ORSError),  # the session is gone
            ORS(url, options=Options(retries=0)) as client,
            client.environment("having").session(split="train", index=0) as session,
        ):
            block = session.call_tool("family", {}).blocks[0]
            assert isinstance(block, TextBlock)
            pids += json.loads(block.text)
            assert all(map(alive, pids))
            process.send_signal(how)
            process.wait(30)
    assert len(pids) == 3
    wait_until(lambda: not any(map(alive, pids)))


def test_a_program_beside_the_server_is_not_counted_as_a_sandbox() -> None:
    with (
        serving(Server([having(MCPToolset(words()))])) as url,
        ORS(url) as client,
        client.environment("having").session(split="train", index=0) as session,
    ):
        assert session.call_tool("count", {}).blocks == [TextBlock(text="1")]
        assert b"\nors_sandboxes_open 0" in Raw(url).get("/-/metrics").body


def test_it_works_over_sockets_with_the_sync_client() -> None:
    with (
        serving(Server([having(MCPToolset(words()))])) as url,
        ORS(url) as client,
        client.environment("having").session(split="train", index=0) as session,
    ):
        assert "echo" in [spec.name for spec in session.list_tools()]
        assert session.call_tool("count", {}).blocks == [TextBlock(text="1")]
        assert session.call_tool("submit", {}).reward == 1.0


SHOP = """
from ors import Environment, ToolOutput, tool
from tests.toolsets.test_mcp import MCPToolset, words

class Shop(Environment):
    tasks = {"train": [{"word": "a"}, {"word": "b"}], "test": [{"word": "c"}]}
    toolsets = [MCPToolset(words(), only=["echo", "count"])]

    def get_prompt(self) -> str:
        return f"Say {self.task_spec['word']} twice, then submit it."

    @tool
    def submit(self, word: str) -> ToolOutput:
        '''Submit a word.'''
        return ToolOutput("Done.", reward=float(word == self.task_spec["word"] * 2), finished=True)

    @classmethod
    def solve(cls, task_spec):
        return [("echo", {"text": task_spec["word"]}), ("submit", {"word": task_spec["word"] * 2})]
"""


@pytest.mark.long
@pytest.mark.timeout(180)
def test_ors_test_finds_nothing_in_an_environment_with_an_mcp_server(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    examined = ("test", "shop.py", "--episodes", "20")
    done = run(*examined, cwd=tmp_path, env={"PYTHONPATH": os.getcwd()}, patience=150)
    assert (done.code, done.out.partition("\n")[0]) == (0, "shop: no problems found"), done.out + done.err


# ── Forks ────────────────────────────────────────────────────────────────────────────────────────


async def test_a_fork_has_a_new_server_and_says_so_once() -> None:
    async with opened(MCPToolset(words())) as session:
        assert await text(session, "count") == "1"
        (copy,) = await session.fork(1)
        async with copy:
            blocks = (await copy.call_tool("count", {})).blocks
            assert blocks[0] == TextBlock(text="1")
            assert "this is a fork, with a new MCP server" in str(blocks[1])
            assert (await copy.call_tool("count", {})).blocks == [TextBlock(text="2")]
        assert await text(session, "count") == "2"


# ── In a sandbox ─────────────────────────────────────────────────────────────────────────────────


class Boxed(SandboxEnvironment):
    """Puts the server into the sandbox."""

    sandbox: ClassVar[SandboxSpec | Pool] = SandboxSpec(backend="bwrap")
    tasks: ClassVar[Any] = {"train": [{}]}
    toolsets = [MCPToolset(["python3", "server.py"], sandbox=True, env={"MODE": "boxed"})]

    async def setup(self) -> None:
        await super().setup()
        await self.box.write_file("server.py", SCRIPT.read_bytes())

    def get_prompt(self) -> Blocks:
        return [TextBlock(text="Work.")]


async def test_a_server_runs_in_the_sandbox_of_the_episode() -> None:
    async with ors.testing.session(Boxed, split="train", index=0) as session:
        seen = json.loads(await text(session, "variables"))
        assert (seen["folder"], seen["MODE"], seen["HOME"]) == ("/work", "boxed", "/home/agent")
        assert await text(session, "large") == "x" * 5_000_000
        (copy,) = await session.fork(1)
        async with copy:
            assert await text(copy, "count") == "1"
        with pytest.raises(ToolFailed, match=r"ended \(status 3\)(?s:.*)out of cheese"):
            await session.call_tool("die", {})


async def test_a_server_in_a_sandbox_needs_one() -> None:
    told = await failure(MCPToolset(words(), sandbox=True))
    assert "Having has no sandbox: derive it from SandboxEnvironment" in told
