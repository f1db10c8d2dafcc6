"""Files: tools to look at and change files of the sandbox."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from pydantic import Field

from ors.environment import tool
from ors.errors import SandboxLimit, ToolError
from ors.toolsets.environment import LONGEST, SandboxTools, shortened
from ors.types import ToolOutput

LARGEST = 2**20
"""Largest file that these tools open, in bytes."""
MOST_LINES = 400

At = Annotated[str, Field(description="Path of a file; a relative one starts in the working folder.")]
Where = Annotated[str, Field(description="A folder or a file.")]


class Files(SandboxTools):
    """The tools `view`, `create`, `replace`, `insert`, `find` and `grep`."""

    @tool
    async def view(
        self,
        path: At,
        first: Annotated[int, Field(description="First line, from 1.", ge=1)] = 1,
        last: Annotated[int | None, Field(description="Last line; by default the end.", ge=1)] = None,
    ) -> ToolOutput:
        """Show a text file with line numbers, at most 400 lines or 16,000 characters at a time."""
        lines = _lines(await self._read(path))
        end = min(last or len(lines), len(lines), first + MOST_LINES - 1)
        shown, room, number = list[str](), LONGEST, first
        while number <= end and (room >= len(lines[number - 1]) or not shown):
            line = lines[number - 1].rstrip("\n")
            shown.append(f"{number:6}\t{shortened(line)}")
            room, number = room - len(shown[-1]), number + 1
        if number <= min(last or len(lines), len(lines)):
            shown.append(f"[… {len(lines) - number + 1:,} more lines; view from line {number} …]")
        return ToolOutput("\n".join(shown) or f"[{path} has {len(lines)} lines; there is no line {first}]")

    @tool
    async def create(self, path: At, text: str) -> ToolOutput:
        """Create a file, or replace all of its text."""
        await self._write(path, text)
        return ToolOutput(f"Wrote {len(_lines(text))} lines to {path}.")

    @tool
    async def replace(
        self,
        path: At,
        old: Annotated[str, Field(description="Text that is in the file exactly once.", min_length=1)],
        new: str,
    ) -> ToolOutput:
        """Replace a text that occurs exactly once in a file."""
        text = await self._read(path)
        count = text.count(old)
        if count != 1:
            raise ToolError(f"The text occurs {count} times in {path}, not once. Nothing was changed.")
        await self._write(path, text.replace(old, new))
        return ToolOutput(f"Replaced it in {path}, line {text[: text.index(old)].count(chr(10)) + 1}.")

    @tool
    async def insert(
        self,
        path: At,
        line: Annotated[int, Field(description="The text comes after this line; 0 is the start.", ge=0)],
        text: str,
    ) -> ToolOutput:
        """Insert text after a line of a file."""
        lines = _lines(await self._read(path))
        if line > len(lines):
            raise ToolError(f"{path} has {len(lines)} lines, no line {line}. Nothing was changed.")
        if line and not lines[line - 1].endswith("\n"):
            lines[line - 1] += "\n"
        new = text if text.endswith("\n") else text + "\n"
        await self._write(path, "".join([*lines[:line], new, *lines[line:]]))
        return ToolOutput(f"Inserted {len(_lines(new))} lines into {path}.")

    @tool
    async def find(
        self, name: Annotated[str, Field(description="Pattern of names, such as *.py")], where: Where = "."
    ) -> ToolOutput:
        """Find files and folders by their names."""
        return await self._printed(["find", *_path(where), "-name", name], "Nothing was found.")

    @tool
    async def grep(
        self, pattern: Annotated[str, Field(description="A regular expression.")], where: Where = "."
    ) -> ToolOutput:
        """Find lines that match, with their files and line numbers."""
        return await self._printed(["grep", "-rnIE", "-e", pattern, "--", where], "No line matches.")

    async def _read(self, path: str) -> str:
        with _refusing(path):
            return (await self._box.read_file(path, LARGEST)).decode()

    async def _write(self, path: str, text: str) -> None:
        with _refusing(path):
            await self._box.write_file(path, text.encode())

    async def _printed(self, argv: list[str], nothing: str) -> ToolOutput:
        try:
            result = await self._box.exec(argv)
        except (ValueError, SandboxLimit) as error:
            raise ToolError(str(error)) from None
        text = (result.stdout + result.stderr).decode(errors="replace").strip("\n")
        notes = "\n[stopped: too much to list]" if result.timed_out or result.truncated else ""
        return ToolOutput(shortened(text or nothing) + notes)


def _lines(text: str) -> list[str]:
    """Lines with their ends, counted as grep and other programs count them: by line feeds alone."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _path(where: str) -> list[str]:
    # `find` takes a word that begins with a dash for an option.
    return [where if not where.startswith("-") else f"./{where}"]


@contextmanager
def _refusing(path: str) -> Iterator[None]:
    """Tells the agent why a file cannot be had."""
    try:
        yield
    except UnicodeDecodeError:
        raise ToolError(f"{path} is not a text file in UTF-8.") from None
    except (OSError, SandboxLimit, ValueError) as error:
        raise ToolError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
