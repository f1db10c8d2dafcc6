"""The tutorial, the guides and the pages on migration, followed from top to bottom."""

import asyncio
import dataclasses
import json
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import ors.testing
from ors import Server, TextBlock, errors
from ors.client import ORS, AsyncORS, Options
from ors.errors import ToolFailed
from ors.rollouts.agents.coding.table import SNIPPETS
from ors.toolsets import MCPToolset
from tests.examples.episode import text
from tests.examples.pages import ROOT, Reader, fences
from tests.support.commands import running
from tests.support.judging import judging
from tests.support.live_server import serving
from tests.support.raw_http import Raw

CODING_AGENTS = "docs/guides/coding-agents.md"
PLAIN = (
    "docs/guides/calling.md",
    "docs/guides/environments.md",
    "docs/guides/sandboxes.md",
    "docs/guides/sandbox-roots.md",
    "docs/migration/gymnasium.md",
    "docs/migration/openenv.md",
    "docs/migration/openreward.md",
    "docs/migration/ors-sdk.md",
    "docs/migration/verifiers.md",
)
"""Pages that need nothing but a reader; the others have a test each."""

FOLLOWED = (
    *PLAIN,
    "docs/tutorial.md",
    "docs/guides/coding-agents.md",
    "docs/guides/datasets.md",
    "docs/guides/judges.md",
    "docs/guides/rewards.md",
    "docs/guides/secrets.md",
    "docs/guides/testing.md",
    "docs/guides/tools.md",
)
"""All pages that a test of this file follows."""

Read = Callable[[str], Reader]


@pytest.fixture
def read(tmp_path: Path) -> Iterator[Read]:
    """Opens a page in an empty folder."""
    with ExitStack() as opened:
        yield lambda page: opened.enter_context(Reader(page, tmp_path))


@pytest.mark.parametrize("page", PLAIN)
def test_a_page_does_what_it_says(read: Read, page: str) -> None:
    read(page).python()


Played = Callable[..., dict[str, Any]]


@pytest.fixture
def played(read: Read) -> Callable[[str], Played]:
    """Serves the environments of a page; the result plays one call of a task by its index."""

    def opened(page: str) -> Played:
        reader = read(page)
        reader.python()
        raw = Raw(reader.serve())

        def play(env: str, index: int, tool: str, given: dict[str, Any], **more: Any) -> dict[str, Any]:
            task = {"env_name": env, "split": "train", "index": index, **more}
            sid = raw.post("/create_session").json()["sid"]
            assert raw.post("/create", task, sid=sid).status == 200
            result: dict[str, Any] = raw.call(sid, tool, given, env=env).result()
            return result

        return play

    return opened


UVX = """#!{python}
import sys
sys.path.insert(0, {root!r})
from tests.support import mcp_stdio_server as server
assert sys.argv[1:] == ["mcp-server-time"]
sys.argv[1:] = []
schema = {{"type": "object", "properties": {{"timezone": {{"type": "string"}}}}}}
server.TOOLS["get_current_time"] = ("Tells the time.", schema)
server.Server.on_get_current_time = lambda self, timezone: server.said(f"12:00 {{timezone}}")
server.main()
"""
"""In place of the program that runs packages of PyPI: a server with the tool of the page."""


def test_the_environments_of_the_page_of_tools_do_what_it_says(
    played: Callable[[str], Played], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uvx = tmp_path / "bin" / "uvx"
    uvx.parent.mkdir()
    uvx.write_text(UVX.format(python=sys.executable, root=str(ROOT)))
    uvx.chmod(0o755)
    monkeypatch.setenv("PATH", f"{uvx.parent}{os.pathsep}{os.environ['PATH']}")
    play = played("docs/guides/tools.md")
    assert text(play("restaurant", 0, "order", {"dish": "soup"})["output"]) == "1 x soup"
    assert play("restaurant", 0, "order", {"dish": "pie"})["reason"] == "input_validation"
    assert text(play("restaurant", 0, "pay", {})["output"]) == "Paid, with 10% on top."
    assert text(play("largetables", 5, "discount", {})["output"]) == "5% for you."
    assert play("largetables", 1, "discount", {})["reason"] == "not_found"
    assert text(play("relay", 0, "remote", {})["output"]) == "from elsewhere"
    assert play("essay", 0, "grade", {"text": "soup"})["output"]["reward"] == 1.0
    assert text(play("withmenu", 0, "dish", {"name": "soup"})["output"]) == "Our soup is fresh."
    assert text(play("talk", 1, "say", {"text": "What would you like?"})["output"]) == "For me the soup."
    assert text(play("withnotes", 1, "note", {"text": "two"})["output"]) == "two (for 2)"
    assert text(play("withclock", 0, "clock_get_current_time", {"timezone": "UTC"})["output"]) == "12:00 UTC"
    assert "12:00 UTC" in play("withclock", 0, "leave", {})["output"]["metadata"]["at"]


def test_the_environments_of_the_page_of_data_sets_have_their_tasks(
    played: Callable[[str], Played], tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.jsonl").write_text('{"country": "Peru", "capital": "Lima"}\n')
    play = played("docs/guides/datasets.md")
    assert play("capitals", 0, "submit", {"capital": "lima"})["output"]["reward"] == 1.0
    assert play("manysums", 999_999, "submit", {"answer": 1_999_998})["output"]["reward"] == 1.0


def test_the_page_of_rewards_grades_an_area(read: Read) -> None:
    reader = read("docs/guides/rewards.md")
    reader.python()
    with (
        ORS(reader.serve()) as client,
        client.environment("areas").session(split="train", index=0) as session,
    ):
        assert session.call_tool("submit", {"area": "3.14"}).reward == 1.0


@pytest.mark.xdist_group("providers")  # whose packages take seconds to import
async def test_the_page_of_judges_asks_its_judge(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    said = json.dumps({name: {"reason": "", "score": 1} for name in ("theme", "form", "beauty")})
    async with judging(said, "Well, well.") as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.url}/v1")
        rewards = await asyncio.to_thread(judged, read("docs/guides/judges.md"))
    assert rewards == [{"theme": 0.5, "form": 0.3, "beauty": 0.05}, "failed"]
    assert "A frog jumps in" in provider.prompts()[0]


def judged(reader: Reader) -> list[Any]:
    """The rewards of two haikus."""
    reader.python()
    rewards: list[Any] = []
    with ORS(reader.serve()) as client:
        for poem in ("A frog jumps in", "A frog jumps out"):
            secrets = {"openai_api_key": "sk-12345678"}
            with client.environment("haiku").session(split="train", index=0, secrets=secrets) as session:
                try:
                    rewards.append(session.call_tool("submit", {"poem": poem}).rewards)
                except ToolFailed:
                    rewards.append("failed")
    return rewards


def test_the_page_of_secrets_demands_one_and_shares_a_dictionary(read: Read) -> None:
    reader = read("docs/guides/secrets.md")
    reader.python()
    with (
        ORS(reader.serve()) as client,
        pytest.raises(errors.BadRequest, match="needs the secret 'search_key'"),
    ):
        client.environment("keyed").session(split="train", index=0).start()
    looked_up = """
import asyncio, ors.testing
from dictionary import Dictionary

async def main():
    async with ors.testing.session(Dictionary, split="train", index=0) as session:
        print((await session.call_tool("look_up", {"word": "ors"})).blocks[0].text)

asyncio.run(main())
"""
    reader.block(looked_up)
    assert reader.printed.splitlines()[-1] == "an open standard"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_tests_of_the_page_of_testing_pass(read: Read) -> None:
    reader = read("docs/guides/testing.md")
    reader.python()
    assert "3 passed" in reader.shell("pytest -q -n 0 test_adder.py")
    assert "adder: no problems found" in reader.shell("ors test adder.py --episodes 20")
    assert reader.namespace["report"].environment == "adder"


def settings(page: str) -> list[dict[str, Any]]:
    """The settings of agents on a page, in its order."""
    read = {"json": json.loads, "toml": tomllib.loads}
    return [read[language](content) for language, content in fences(page) if language in read]


def test_the_settings_of_coding_agents_on_their_page_are_those_of_the_table() -> None:
    by_url = settings(CODING_AGENTS)[: len(SNIPPETS)]
    assert json.loads(json.dumps(by_url).replace("URL", "{url}")) == [
        server for _, server in SNIPPETS.values()
    ]
    page = (ROOT / CODING_AGENTS).read_text()
    assert [file for file, _ in SNIPPETS.values() if f"in `{file}`" not in page] == []


@pytest.mark.long
async def test_the_commands_in_the_settings_of_coding_agents_play_episodes(read: Read) -> None:
    reader = read(CODING_AGENTS)
    reader.python()
    by_command = settings(CODING_AGENTS)[len(SNIPPETS) :]
    assert [sorted(each) for each in by_command] == [["mcpServers"], ["mcp_servers"], ["mcpServers"], ["mcp"]]
    commands = []
    for (server,) in (next(iter(each.values())).values() for each in by_command):
        command = server["command"]
        commands.append([*command] if isinstance(command, list) else [command, *server["args"]])
    assert commands == [commands[0]] * 4
    assert commands[0][0] == "ors"
    words = [sys.executable, "-m", *commands[0]]

    class Playing(import_module("hunt").Hunt):  # type: ignore[misc]
        """Plays the episode of the page with its own hands: its only tools are those of the command."""

        toolsets = [MCPToolset(words, prefix="their_")]

    async with ors.testing.session(Playing, split="train", index=0) as session:
        for number, said in ((50, "Lower."), (37, "That is it.")):
            output = await session.call_tool("their_guess", {"number": number})
            assert (output.blocks[0], output.reward) == (TextBlock(text=said), None)
    assert json.loads((reader.folder / "outcome.json").read_text())["reward"] == 1.0


@pytest.mark.long
async def test_an_agent_plays_in_the_sandbox_of_the_page_and_finds_nothing_else(read: Read) -> None:
    reader = read(CODING_AGENTS)
    reader.python()
    served = Server([import_module("hunt").Hunt], api_keys=["owner=the-owners-key"])
    with serving(served) as url:
        async with (
            AsyncORS(url, "the-owners-key") as client,
            client.environment("hunt").session(split="train", index=0) as session,
        ):
            command = ["python3", "-c", PLAYER, url, str(reader.folder / "hunt.py")]
            play = reader.namespace["played"]
            printed = await play(await session.mcp_url(), command, {"PATH": "/usr/bin:/bin"}, "/usr/bin")
            assert printed.split() == [b"401", b"False", b"played"]
            assert (await session.score()).rewards == [1.0]


PLAYER = """
import json, os, sys, urllib.error, urllib.request
def post(url, body):
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request)
try:
    post(sys.argv[1] + "/create_session", {})
except urllib.error.HTTPError as error:
    print(error.code)
print(os.path.exists(sys.argv[2]))
url = json.load(open("/work/.mcp.json"))["mcpServers"]["ors"]["url"]
call = {"name": "guess", "arguments": {"number": 37}}
answer = post(url, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).read()
print("played" if b"That is it." in answer and b"reward" not in answer else answer)
"""
"""A program that knows no more than the sandbox has: it tries the server without a key, and then plays."""


def test_the_curl_lines_of_the_page_of_calling_play_an_episode(read: Read) -> None:
    reader = read("docs/guides/calling.md")
    reader.python()
    (lines,) = [content for language, content in fences(reader.page) if language == "sh"]
    printed = reader.shell(lines, reader.serve())
    assert "Spend exactly 2." in printed
    assert '"reward":1.0,"finished":true' in printed


def test_the_options_of_the_client_are_on_its_page_with_their_defaults() -> None:
    table = (ROOT / "docs" / "guides" / "calling.md").read_text()
    told = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", table[table.index("## Options") :], re.MULTILINE))
    assert told == {each.name: str(each.default) for each in dataclasses.fields(Options)}


def test_the_errors_of_the_client_are_on_its_page() -> None:
    page = (ROOT / "docs" / "guides" / "calling.md").read_text()
    named = set(re.findall(r"`(\w+)`", page))
    others = {"InvalidEnvironment", "JudgeFailed", "ORSError", "ResponseError", "StartupFailed", "ToolError"}
    sandbox = {name for name in errors.__all__ if name.startswith("Sandbox")}
    assert set(errors.__all__) - named - others - sandbox == set()


def test_the_messages_of_troubleshooting_are_those_of_the_source() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    told = [row.split("|")[1] for row in page.splitlines() if row.startswith("| `")]
    parts = [part for row in told for part in re.findall(r"`([^`]+)`", row)]
    source = " ".join(path.read_text() for path in (ROOT / "src" / "ors").rglob("*.py"))
    source = re.sub(r'"\s+f?"', "", source)  # texts in several literals
    assert len(parts) > 60
    assert [part for part in parts if part not in source] == []


def slug(heading: str) -> str:
    """The anchor of a heading."""
    text = re.sub(r"[^\w\- ]", "", re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading).lower())
    return text.replace(" ", "-")


def anchors(page: Path) -> set[str]:
    """The anchors of a page; comments in its code are no headings."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return {slug(heading) for heading in re.findall(r"^#+ (.*)$", prose, re.MULTILINE)}


def test_links_to_a_part_of_a_page_lead_to_a_heading() -> None:
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        check_anchors(page)


def check_anchors(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", page.read_text()):
        assert anchor in anchors((page.parent / target).resolve() if target else page), (
            f"{page.name}: {target}#{anchor}"
        )


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_tutorial_works_line_by_line(read: Read) -> None:
    reader = read("docs/tutorial.md")
    for language, content in fences("docs/tutorial.md"):
        if language == "python":
            reader.block(content)
        elif language == "sh":
            typed(reader, content)
    assert reader.printed.splitlines()[-1] == "halving: 40 episodes, mean reward 1.00"


def typed(reader: Reader, commands: str) -> None:
    """Types the commands of a block; a server only has to start, since the reader serves the page itself."""
    for line in commands.splitlines():
        if line.startswith("ors serve"):
            with running(*line.split()[1:], "--port", "0", cwd=reader.folder) as server:
                server.line("Serving on http")
        else:
            reader.shell(line)
