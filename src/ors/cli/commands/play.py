"""`ors play`: plays an episode by hand."""

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from ors import ToolSpec
from ors.cli.errors import WrongUsage, clean
from ors.cli.inputs import example, found_tool, tool_input, usage
from ors.cli.options.session import Choice, opening
from ors.cli.options.shared import WHERE, Command, as_json
from ors.cli.output.printing import number, print_blocks, print_json, print_outcome, shortened
from ors.client import Session, TerminalToolSpec
from ors.errors import ToolCallError, ToolFailed

LAST = " (terminal: takes the last message)"
HOW = "Type a tool and its input, for example: {example}. Other commands: /tools, /prompt, /quit (or Ctrl-D)."


@click.command(
    cls=Command,
    examples=["ors play adder", "echo submit 3 | ors play http://127.0.0.1:8080 --split train --json"],
)
@WHERE
@opening
@as_json
def play(choice: Choice, images: Path, as_json: bool) -> None:
    """Play an episode by hand: read the prompt, call tools, collect rewards.

    Type the input of a tool as key=value words, as a JSON object, or as a plain value if it has one
    parameter. Lines may also come from a pipe. With --json, standard output has only the report; everything
    else goes to standard error.
    """
    with choice.opened() as session:
        game = Game(session, images, err=as_json)
        try:
            game.run()
        finally:
            game.print_total()
    if as_json:
        print_json({"split": session.split, "index": session.index, **game.report()})


class Game:
    """One episode and its rewards."""

    def __init__(self, session: Session, images: Path, *, err: bool) -> None:
        self._session = session
        self._images = images
        self._err = err
        self._tools: list[ToolSpec] = []
        self._last: TerminalToolSpec | None = None
        self._calls: list[dict[str, Any]] = []
        self._total = 0.0
        self._finished = False

    def run(self) -> None:
        """Plays until the episode is finished or the player quits."""
        self._print_prompt()
        self._tools = self._session.list_tools(terminal=True)
        self._last = self._session.terminal_tool()
        self._say("")
        self._print_tools()
        self._say("\n" + HOW.format(example=_example(self._tools)))
        for line in _lines(self._err, [spec.name for spec in self._tools]):
            if line == "/quit":
                return
            self._turn(line)
            if self._finished:
                return

    def report(self) -> dict[str, Any]:
        """Report for `--json`."""
        return {"calls": self._calls, "total": self._total, "finished": self._finished}

    def print_total(self) -> None:
        """Prints the result of the episode."""
        ending = "The episode is finished." if self._finished else "The episode is not finished."
        rewards = "1 call" if len(self._calls) == 1 else f"{len(self._calls)} calls"
        self._say(f"\n{ending} Total reward: {number(self._total)}, in {rewards}.")

    def _turn(self, line: str) -> None:
        try:
            if line == "/prompt":
                self._print_prompt()
            elif line == "/tools" or line == "/help":
                self._print_tools()
            elif line:
                self._call(line)
        except WrongUsage as error:
            self._say(error.message)
        except ToolCallError as error:
            self._calls[-1]["error"] = str(error)
            self._say(f"Refused: {error}")
        except ToolFailed as error:
            self._calls[-1]["error"] = str(error)
            self._say(f"Failed: {error}")

    def _call(self, line: str) -> None:
        name, _, rest = line.partition(" ")
        spec = found_tool(self._tools, name)
        given = _read(spec, rest.strip())
        self._calls.append({"tool": name, "input": given})
        output = self._session.call_tool(name, given)
        self._calls[-1]["output"] = output.model_dump()
        print_blocks(output.blocks, self._images, name, err=self._err)
        print_outcome(output, err=self._err)
        self._total += output.reward or 0.0
        self._finished = output.finished

    def _print_prompt(self) -> None:
        print_blocks(self._session.get_prompt(), self._images, "prompt", err=self._err)

    def _print_tools(self) -> None:
        for spec in self._tools:
            last = self._last is not None and spec.name == self._last.name
            self._say(f"  {usage(spec)}  {shortened(spec.description)}{LAST if last else ''}")

    def _say(self, text: str) -> None:
        click.echo(clean(text), err=self._err)


def _example(tools: list[ToolSpec]) -> str:
    """Example of a line to type."""
    spec = tools[0] if tools else ToolSpec(name="submit", description="", input_schema=None)
    return example(spec)


def _read(spec: ToolSpec, text: str) -> dict[str, Any]:
    """Reads the input of a tool from the rest of a line."""
    if text.startswith("{"):
        try:
            return tool_input(spec, (), json.loads(text))
        except json.JSONDecodeError as error:
            raise WrongUsage(f"Not valid JSON: {error}") from None
    parameters = list(dict((spec.input_schema or {}).get("properties") or {}))  # type: ignore[arg-type]
    if text and len(parameters) == 1 and not text.startswith(f"{parameters[0]}="):
        return tool_input(spec, [f"{parameters[0]}={text}"])
    try:
        return tool_input(spec, shlex.split(text))
    except ValueError as error:
        raise WrongUsage(f"The quotes do not match: {error}") from None


def _lines(err: bool, tools: list[str]) -> Iterator[str]:
    """Lines from the terminal or a pipe."""
    edited = sys.stdin.isatty() and sys.stdout.isatty() and not err
    if edited:
        _complete(tools)
    while True:
        line = _edited() if edited else _plain(err)
        if line is None:
            return
        yield line.strip()


def _edited() -> str | None:
    try:
        return input("> ")
    except (EOFError, KeyboardInterrupt):
        return None


def _plain(err: bool) -> str | None:
    click.echo("> ", nl=False, err=err)
    line = sys.stdin.readline()
    if not sys.stdin.isatty():
        click.echo(line.rstrip("\n"), err=err)  # echo it as if it had been typed
    return line or None


def _complete(tools: list[str]) -> None:
    """Enables line editing with history and completion of tool names."""
    try:
        import readline
    except ImportError:
        return
    words = [f"{word} " for word in (*tools, "/tools", "/prompt", "/quit")]
    readline.set_completer_delims(" ")
    readline.set_completer(lambda text, n: [*(word for word in words if word.startswith(text)), None][n])
    readline.parse_and_bind("tab: complete")
