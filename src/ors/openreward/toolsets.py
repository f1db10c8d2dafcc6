"""The toolsets of openreward that public environments use: a shell with files, and the web."""

import json
import os
import posixpath
import urllib.request
from collections.abc import Sequence
from shlex import quote
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from ors.environment import tool
from ors.errors import ToolError
from ors.openreward.environments import Toolset, download_text, upload_text
from ors.types import JSONObject, ToolOutput

WEB_SECONDS = 60
NOTES = {
    "truncated": "output exceeded the limit and was cut off",
    "timed_out": "command hit the time limit and was killed",
}


class Todo(BaseModel, extra="forbid"):
    content: str
    status: Literal["pending", "in_progress", "completed"] = "pending"
    priority: Literal["low", "medium", "high"] = "medium"
    id: str | None = None


class Edit(BaseModel, extra="forbid"):
    old_string: str = Field(min_length=1)
    new_string: str
    replace_all: bool = False


def _said(text: str, reward: float | None = None, **metadata: Any) -> ToolOutput:
    return ToolOutput(text, metadata=metadata, reward=reward)


class CLIToolset(Toolset):
    """A shell and files in the sandbox; relative paths begin at `root`, or at `env.workspace_root`."""

    label = "cli"
    root: str | None = None
    bash_timeout: ClassVar[float | None] = None
    max_bash_timeout: ClassVar[float | None] = None
    bash_max_bytes: ClassVar[int | None] = None

    def __init__(self, env: Any = None, sandbox_attr: str = "sandbox", root: str | None = None) -> None:
        super().__init__(env, sandbox_attr)
        self.root = root or getattr(env, "workspace_root", None) or type(self).root
        self.todos: list[dict[str, Any]] = []

    def _at(self, path: str) -> str:
        return path if self.root is None else posixpath.normpath(posixpath.join(self.root, path))

    async def _run(self, command: str, **limits: Any) -> ToolOutput:
        limits = {name: value for name, value in limits.items() if value is not None}
        result = await self.sandbox.run(command, **limits)
        output, code = result
        hit = [name for name in NOTES if getattr(result, name)]
        note = f"\n\n[{'; '.join(NOTES[name] for name in hit)}]" if hit else ""
        metadata = {"output": output, "exit_code": code, **dict.fromkeys(hit, True)}
        return _said(f"{output}\n\n(exit {code}){note}", **metadata)

    @tool(concurrent=True)
    async def bash(self, command: str, timeout: float | None = None) -> ToolOutput:
        """Execute a bash command in the sandbox."""
        seconds = timeout if timeout is not None else self.bash_timeout
        limits = [each for each in (seconds, self.max_bash_timeout) if each is not None]
        begin = f"cd {quote(self.root)} || exit 1\n" if self.root else ""
        least = min(limits, default=None)
        return await self._run(begin + command.strip(), timeout=least, max_bytes=self.bash_max_bytes)

    @tool(concurrent=True)
    async def glob(self, pattern: str, path: str | None = None) -> ToolOutput:
        """Find files matching a glob pattern."""
        return await self._run(f"find {quote(self._at(path or '.'))} -name {quote(pattern)} -type f | sort")

    @tool(concurrent=True)
    async def grep(self, pattern: str, path: str | None = None, include: str | None = None) -> ToolOutput:
        """Recursively search file contents for a pattern."""
        only = f"--include={quote(include)} " if include else ""
        return await self._run(f"grep -rn {only}-- {quote(pattern)} {quote(self._at(path or '.'))}")

    @tool(concurrent=True)
    async def ls(self, path: str = ".", ignore: list[str] | None = None) -> ToolOutput:
        """List directory contents."""
        without = " ".join(f"--ignore={quote(each)}" for each in ignore or ())
        return await self._run(f"ls -la {without} {quote(self._at(path))}")

    @tool(concurrent=True)
    async def read(self, file_path: str, offset: int | None = None, limit: int | None = None) -> ToolOutput:
        """Read a file with line numbers; `offset` is the first line, `limit` the number of lines."""
        last = "$" if limit is None else str((offset or 1) + limit - 1)
        numbered = f"cat -n {quote(self._at(file_path))}"
        return await self._run(f"set -o pipefail; {numbered} | sed -n {offset or 1},{last}p", max_bytes=2**20)

    @tool
    async def write(self, file_path: str, content: str) -> ToolOutput:
        """Write content to a file, creating parent directories as needed."""
        path = self._at(file_path)
        await self.sandbox.check_run(f"mkdir -p {quote(posixpath.dirname(path) or '.')}")
        await upload_text(self.sandbox, path, content)
        return _said(f"Successfully wrote to {path}\n\n(exit 0)", output="", exit_code=0)

    @tool
    async def edit(
        self, file_path: str, old_string: str, new_string: str, replace_all: bool = False
    ) -> ToolOutput:
        """Replace a text that occurs once in a file, or everywhere with `replace_all`."""
        edit = Edit(old_string=old_string, new_string=new_string, replace_all=replace_all)
        await self._replace(file_path, [edit], unique=True)
        return _said(f"Successfully edited {self._at(file_path)}\n\n(exit 0)", output="", exit_code=0)

    @tool
    async def multi_edit(self, file_path: str, edits: list[Edit]) -> ToolOutput:
        """Apply edits to a file in order; if one does not fit, the file stays as it is."""
        total = await self._replace(file_path, edits, unique=False)
        text = f"Successfully applied {len(edits)} edits with {total} total replacements"
        return _said(text, total_replacements=total, edits_applied=len(edits))

    async def _replace(self, file_path: str, edits: Sequence[Edit], *, unique: bool) -> int:
        path, total = self._at(file_path), 0
        content = await download_text(self.sandbox, path)
        for each in edits:
            count = content.count(each.old_string)
            if not count:
                raise ToolError(f"old_string not found in {path}: {each.old_string!r}")
            if unique and count > 1 and not each.replace_all:
                raise ToolError(f"old_string appears {count} times in {path}: use replace_all, or more text")
            content = content.replace(each.old_string, each.new_string, -1 if each.replace_all else 1)
            total += count if each.replace_all else 1
        await upload_text(self.sandbox, path, content)
        return total

    @tool(concurrent=True)
    async def todo_write(self, todos: list[Todo]) -> ToolOutput:
        """Replace the to-do list."""
        self.todos = [each.model_dump() for each in todos]
        lines = [f"[{each.status}] [{each.priority}] {each.content}" for each in todos]
        return _said("\n".join(["=== TODO LIST ===", *lines]), todos=self.todos, count=len(lines))


@tool(concurrent=True)
async def _described_bash(
    self: Any, command: str, description: str = "", timeout: float | None = None
) -> ToolOutput:
    """Executes a given bash command in the sandbox; `description` says what it is for."""
    return await CLIToolset.bash(self, command, timeout)


class ClaudeCodeToolset(CLIToolset):
    """The tools of Claude Code, in the sandbox."""

    label = "claude-code"
    bash = _described_bash  # type: ignore[assignment]
    ls = multi_edit = None  # type: ignore[assignment]

    @tool(concurrent=True)
    async def grep(self, pattern: str, path: str | None = None, glob: str | None = None) -> ToolOutput:
        """Recursively search the contents of files, whose names match `glob`."""
        return await super().grep(pattern, path, glob)


class CodexToolset(CLIToolset):
    """The one tool of Codex, in the sandbox."""

    label = "codex"
    bash = _described_bash  # type: ignore[assignment]
    glob = grep = ls = read = write = edit = multi_edit = todo_write = None  # type: ignore[assignment]


class WebToolset(Toolset):
    """Search and pages of the web, from services that OPENREWARD_WEB_SEARCH_URL and _FETCH_URL name."""

    label = "web"

    def __init__(
        self, env: Any = None, *, as_of: str | None = None, include_snippets: bool | None = None
    ) -> None:
        self.env = env  # without a sandbox
        self._as_of, self._snippets = as_of, include_snippets

    def _hook(self, name: str) -> Any:
        value = getattr(self.env, name, None)
        return value() if callable(value) else value

    def _asked(self, variable: str, **body: Any) -> dict[str, Any]:
        url = os.environ.get(variable)
        if not url:
            raise ToolError(f"Web access is off: the server was started without {variable}")
        as_of = self._as_of or self._hook("web_as_of") or os.environ.get("OPENREWARD_WEB_AS_OF")
        data = json.dumps({**body, "as_of": as_of}).encode()
        headers = {"Content-Type": "application/json"}
        try:
            request = urllib.request.Request(url, data, headers)
            with urllib.request.urlopen(request, timeout=WEB_SECONDS) as answer:
                return dict(json.load(answer))
        except (OSError, ValueError, TypeError) as error:
            raise RuntimeError(f"{variable}: {error}") from error  # not the agent's doing

    @tool(concurrent=True)
    def web_search(
        self, query: str, allowed_domains: list[str] | None = None, blocked_domains: list[str] | None = None
    ) -> ToolOutput:
        """Search the web; the answer lists links."""
        domains = {"allowed_domains": allowed_domains, "blocked_domains": blocked_domains}
        found = self._asked("OPENREWARD_WEB_SEARCH_URL", query=query, k=8, **domains)
        hits: list[JSONObject] = [hit for hit in found.get("hits") or () if hit.get("url")]
        snippets = self._hook("web_include_snippets") if self._snippets is None else self._snippets
        keys = ("title", "url", "snippet") if snippets else ("title", "url")
        links = [{key: hit.get(key, "") for key in keys} for hit in hits]
        shown = f"Links: {json.dumps(links, ensure_ascii=False)}" if links else "No links found."
        return _said(f'Web search results for query: "{query}"\n\n{shown}', 0.0, hits=hits)

    @tool(concurrent=True)
    def web_fetch(self, url: str, prompt: str) -> ToolOutput:
        """Read a page of the web; `prompt` says what you look for in it."""
        text = str(self._asked("OPENREWARD_WEB_FETCH_URL", url=url).get("text", ""))
        most = self._hook("web_max_fetch_chars")
        content = {"url": url, "prompt": prompt, "content": text[:most]}
        return _said(json.dumps(content, ensure_ascii=False), 0.0)


FOR_SESSIONS = {each.label: each for each in (ClaudeCodeToolset, CLIToolset, CodexToolset, WebToolset)}
"""Those that a client can ask for when it opens a session."""

# ── Spreadsheets: openpyxl, by the Python of the sandbox ─────────────────────────────────────────

BEGIN = """
import csv, json, sys
a = json.loads(sys.argv[1])
path, name = a["path"], a.get("sheet_name")
def opened():
    from openpyxl import load_workbook
    book = load_workbook(path)
    if name is not None and name not in book.sheetnames and not a.get("new"):
        raise KeyError(f"no sheet {name!r}; there are {book.sheetnames}")
    return book, book[name] if name in book.sheetnames else None
def cut(rows):
    return [[str(cell) if cell is not None else "" for cell in row][:a["cols"]] for row in rows][:a["rows"]]
"""
END = 'print(json.dumps({"sheets": book.sheetnames}))'
CHART = """
from openpyxl import chart
from openpyxl.chart import Reference
book, sheet = opened()
kind = a["chart_type"]
made = getattr(chart, {"column": "Bar"}.get(kind, kind.capitalize()) + "Chart")()
if kind in ("bar", "column"):
    made.type = {"bar": "bar", "column": "col"}[kind]
made.title = a["title"]
if kind != "pie":
    made.x_axis.title, made.y_axis.title = a["x_axis_title"], a["y_axis_title"]
made.add_data(Reference(sheet, range_string=f"'{name}'!{a['data_range']}"), titles_from_data=True)
sheet.add_chart(made, a["chart_position"])
book.save(path)
"""


class ExcelToolset(Toolset):
    """Creates, reads and changes spreadsheets in the sandbox, whose Python has openpyxl."""

    async def _do(self, lines: str, path: str, **arguments: Any) -> ToolOutput:
        given = quote(json.dumps({"path": path, **arguments}))
        command = f"python3 -c {quote(BEGIN + lines)} {given} 2>&1"
        output, code = await self.sandbox.run(command, max_bytes=1_000_000)
        if code:
            error = output.rpartition("\n")[2]
            return _said(f"Error: {error}", 0.0, error=error)
        return _said(output, 0.0, **json.loads(output))

    @tool
    async def excel_create_spreadsheet(self, file_path: str, sheet_name: str = "Sheet1") -> ToolOutput:
        """Create a new Excel workbook with an initial worksheet."""
        make = "from openpyxl import Workbook\nbook = Workbook()\nbook.active.title = name\nbook.save(path)\n"
        return await self._do(make + END, file_path, sheet_name=sheet_name)

    @tool
    async def excel_delete_spreadsheet(self, file_path: str) -> ToolOutput:
        """Delete an Excel spreadsheet."""
        return await self._do('import os\nos.remove(path)\nprint(json.dumps({"deleted": path}))', file_path)

    @tool
    async def excel_list_tabs_in_spreadsheet(self, file_path: str) -> ToolOutput:
        """List the worksheets of a workbook."""
        return await self._do(f"book, _ = opened()\n{END}", file_path)

    @tool
    async def excel_add_tab(self, file_path: str, sheet_name: str, position: int | None = None) -> ToolOutput:
        """Add a worksheet, at the end or at a position from 0."""
        add = "book, _ = opened()\nbook.create_sheet(name, a['position'])\nbook.save(path)\n"
        return await self._do(add + END, file_path, sheet_name=sheet_name, position=position, new=True)

    @tool
    async def excel_delete_tab(self, file_path: str, sheet_name: str) -> ToolOutput:
        """Remove a worksheet."""
        remove = "book, sheet = opened()\nbook.remove(sheet)\nbook.save(path)\n"
        return await self._do(remove + END, file_path, sheet_name=sheet_name)

    @tool
    async def excel_read_tab(
        self, file_path: str, sheet_name: str, max_rows: int | None = None, max_cols: int | None = None
    ) -> ToolOutput:
        """Read the cells of a worksheet."""
        read = 'book, sheet = opened()\nprint(json.dumps({"data": cut(sheet.values)}))'
        return await self._do(read, file_path, sheet_name=sheet_name, rows=max_rows, cols=max_cols)

    @tool
    async def excel_read_csv(self, csv_path: str, max_rows: int | None = None) -> ToolOutput:
        """Read a CSV file."""
        read = 'print(json.dumps({"data": cut(csv.reader(open(path, newline="")))}))'
        return await self._do(read, csv_path, rows=max_rows, cols=None)

    @tool
    async def excel_edit_spreadsheet(
        self, file_path: str, sheet_name: str, cell_reference: str, value: str | int | float
    ) -> ToolOutput:
        """Write a value, or a formula, to a cell."""
        return await self.excel_add_content_text(file_path, sheet_name, cell_reference, [[value]])

    @tool
    async def excel_add_content_text(
        self, file_path: str, sheet_name: str, start_cell: str, data: list[list[Any]]
    ) -> ToolOutput:
        """Write rows of values, from a cell on."""
        write = (
            "book, sheet = opened()\nfirst = sheet[a['start_cell']]\n"
            "for y, row in enumerate(a['data']):\n    for x, value in enumerate(row):\n"
            "        sheet.cell(first.row + y, first.column + x).value = value\nbook.save(path)\n"
        )
        return await self._do(write + END, file_path, sheet_name=sheet_name, start_cell=start_cell, data=data)

    @tool
    async def excel_delete_content_cell(
        self, file_path: str, sheet_name: str, cell_reference: str
    ) -> ToolOutput:
        """Clear a cell."""
        return await self.excel_add_content_text(file_path, sheet_name, cell_reference, [[None]])

    @tool
    async def excel_create_chart(
        self,
        file_path: str,
        sheet_name: str,
        chart_type: Literal["bar", "column", "line", "pie", "scatter", "area"],
        data_range: str,
        chart_position: str,
        title: str | None = None,
        x_axis_title: str | None = None,
        y_axis_title: str | None = None,
    ) -> ToolOutput:
        """Draw a chart of a range of cells."""
        what = {"chart_type": chart_type, "data_range": data_range, "chart_position": chart_position}
        titles = {"title": title, "x_axis_title": x_axis_title, "y_axis_title": y_axis_title}
        return await self._do(CHART + END, file_path, sheet_name=sheet_name, **what, **titles)
