"""The toolsets of openreward: a shell and files in a sandbox of ours, and the web by two URLs."""

import json
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
import pytest_asyncio

from ors.errors import ToolError
from ors.openreward.hosting import Hosting, SandboxSettings
from ors.openreward.sandboxes import AsyncOpenReward
from ors.openreward.toolsets import CLIToolset, Edit, ExcelToolset, Todo, WebToolset
from ors.types import ToolOutput

SETTINGS = SandboxSettings(environment="a/b", image="python:3", machine_size="1:1", block_network=True)


class Env:
    workspace_root = "/workspace/src"
    web_include_snippets = True
    sandbox: Any = None


@pytest_asyncio.fixture
async def cli(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CLIToolset]:
    monkeypatch.setattr(AsyncOpenReward, "hosting", Hosting(host_root=True))
    env = Env()
    async with AsyncOpenReward(api_key="any").sandbox(SETTINGS) as env.sandbox:
        yield CLIToolset(env)


def text(output: ToolOutput) -> str:
    return str(output.blocks[0].text)  # type: ignore[union-attr]


async def test_files_are_written_read_found_and_edited_below_the_root(cli: CLIToolset) -> None:
    assert text(await cli.write("a/b.txt", "one\ntwo two\nthree")) == (
        "Successfully wrote to /workspace/src/a/b.txt\n\n(exit 0)"
    )
    assert text(await cli.bash("cat a/b.txt | wc -l; pwd")) == "3\n/workspace/src\n\n(exit 0)"
    assert text(await cli.read("a/b.txt", offset=2, limit=1)).split() == ["2", "two", "two", "(exit", "0)"]
    assert text(await cli.glob("*.txt")) == "/workspace/src/a/b.txt\n\n(exit 0)"
    assert text(await cli.grep("thr", include="*.txt")) == "/workspace/src/a/b.txt:3:three\n\n(exit 0)"
    assert "b.txt" in text(await cli.ls("a"))
    with pytest.raises(ToolError, match="appears 2 times"):
        await cli.edit("a/b.txt", "two", "2")
    with pytest.raises(ToolError, match="not found"):
        await cli.multi_edit(
            "a/b.txt", [Edit(old_string="one", new_string="1"), Edit(old_string="x", new_string="")]
        )
    done = await cli.multi_edit("a/b.txt", [Edit(old_string="two", new_string="2", replace_all=True)])
    assert done.metadata == {"total_replacements": 2, "edits_applied": 1}
    assert (await cli.bash("cat a/b.txt")).metadata == {"output": "one\n2 2\nthree", "exit_code": 0}


async def test_a_command_that_fails_or_takes_too_long_says_so(cli: CLIToolset) -> None:
    await cli.write("here", "")
    assert text(await cli.bash("exit 3")) == "\n\n(exit 3)"
    assert "(exit 1)" in text(await cli.read("missing"))
    late = await cli.bash("sleep 60", timeout=0.2)
    assert text(late).endswith("[command hit the time limit and was killed]")
    assert late.metadata is not None
    assert late.metadata["timed_out"] is True


async def test_spreadsheets_are_the_work_of_the_python_in_the_sandbox(cli: CLIToolset) -> None:
    excel = ExcelToolset(cli.env)
    await cli.write("a.csv", 'one,"two, 2"\nthree,four\nfive,six')
    read = await excel.excel_read_csv("/workspace/src/a.csv", max_rows=2)
    assert read.metadata == {"data": [["one", "two, 2"], ["three", "four"]]}
    assert (
        text(await excel.excel_delete_spreadsheet("/workspace/src/a.csv"))
        == '{"deleted": "/workspace/src/a.csv"}'
    )


async def test_each_tool_says_that_there_is_no_spreadsheet_or_no_openpyxl(cli: CLIToolset) -> None:
    excel, book = ExcelToolset(cli.env), "/workspace/missing/book.xlsx"
    for made in (
        excel.excel_create_spreadsheet(book),
        excel.excel_delete_spreadsheet(book),
        excel.excel_list_tabs_in_spreadsheet(book),
        excel.excel_add_tab(book, "Tab"),
        excel.excel_delete_tab(book, "Tab"),
        excel.excel_read_tab(book, "Tab"),
        excel.excel_edit_spreadsheet(book, "Tab", "A1", 1),
        excel.excel_delete_content_cell(book, "Tab", "A1"),
        excel.excel_create_chart(book, "Tab", "bar", "A1:B2", "D1"),
    ):
        assert text(await made).startswith(("Error: FileNotFoundError:", "Error: ModuleNotFoundError:"))


async def test_a_list_of_things_to_do_is_kept(cli: CLIToolset) -> None:
    assert text(await cli.todo_write([Todo(content="x")])) == "=== TODO LIST ===\n[pending] [medium] x"


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    asked = []

    class Service(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            hits = [{"title": "T", "url": "http://a/", "snippet": "S"}, {"title": "no url"}]
            body = json.dumps({"hits": hits} if self.path == "/search" else {"text": "the page"}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Service) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name in ("search", "fetch"):
            url = f"http://127.0.0.1:{server.server_port}/{name}"
            monkeypatch.setenv(f"OPENREWARD_WEB_{name.upper()}_URL", url)
        yield asked
        server.shutdown()


def test_the_web_is_what_two_urls_answer(web: list[dict[str, Any]]) -> None:
    tools = WebToolset(Env(), as_of="2020-01-01")
    found = tools.web_search("cats", allowed_domains=["a"])
    assert text(found) == (
        'Web search results for query: "cats"\n\nLinks: [{"title": "T", "url": "http://a/", "snippet": "S"}]'
    )
    page = tools.web_fetch("http://a/", "why?")
    assert json.loads(text(page))["content"] == "the page"
    assert (found.reward, page.reward) == (0.0, 0.0)  # as with openreward
    assert (web[0]["query"], web[0]["allowed_domains"], web[0]["as_of"]) == ("cats", ["a"], "2020-01-01")


def test_without_a_url_the_agent_is_told_that_there_is_no_web(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENREWARD_WEB_SEARCH_URL", raising=False)
    with pytest.raises(ToolError, match="OPENREWARD_WEB_SEARCH_URL"):
        WebToolset().web_search("cats")
