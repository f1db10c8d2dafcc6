"""`ors play`: plays an episode by hand."""

import json
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from ors import ToolSpec
from ors.cli.commands.inputs import example, found_tool, tool_input, usage
from ors.cli.errors import WrongUsage
from ors.cli.options.shared import WHERE, Choice, Command, as_json, opening
from ors.cli.output.printing import number, print_blocks, print_json, print_outcome, say, shortened
from ors.client import Session, TerminalToolSpec
from ors.errors import ToolCallError, ToolFailed

LAST = " (terminal: takes the last message)"
HOW = (
    'Type a tool and its input, for example: {example}. Several lines stand between """ and """. '
    "Other commands: help, /tools, /prompt, quit (or Ctrl-D)."
)
LAST_MESSAGE = " Text that begins with no tool's name is the last message."
COMMANDS = ("/tools", "/prompt", "/help", "/quit", "/exit", "help", "quit", "exit")
"""Those without a slash are commands unless a tool has that name."""
QUOTES = '"""'
"""Before and after a value of several lines."""


@click.command(
    cls=Command,
    examples=["ors play adder", "echo submit 3 | ors play http://127.0.0.1:8080 --split train --json"],
)
@WHERE
@opening
@as_json
def play(choice: Choice, images: Path | None, as_json: bool) -> None:
    """Play an episode by hand: read the prompt, call tools, collect rewards.

    Type the input of a tool as key=value words, as a JSON object, or as a plain value for its only
    parameter, or the only one that is required. With a @terminal tool, plain text is the last message. A
    value of several lines stands between triple double quotes, and a JSON object may have several lines.
    Lines may also come from a pipe. With --json, standard output has only the report; everything else goes
    to standard error.
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

    def __init__(self, session: Session, images: Path | None, *, err: bool) -> None:
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
        self._print_help()
        names = [spec.name for spec in self._tools]
        for line in _lines(self._err, names):
            command = line.removeprefix("/") if line in COMMANDS and line not in names else None
            if command in ("quit", "exit"):
                return
            self._turn(line, command)
            if self._finished:
                return

    def report(self) -> dict[str, Any]:
        return {"calls": self._calls, "total": self._total, "finished": self._finished}

    def print_total(self) -> None:
        ending = "The episode is finished." if self._finished else "The episode is not finished."
        rewards = "1 call" if len(self._calls) == 1 else f"{len(self._calls)} calls"
        self._say(f"\n{ending} Total reward: {number(self._total)}, in {rewards}.", bold=True)

    def _turn(self, line: str, command: str | None) -> None:
        try:
            if command == "prompt":
                self._print_prompt()
            elif command == "tools":
                self._print_tools()
            elif command == "help":
                self._print_help()
            elif line:
                self._call(line)
        except WrongUsage as error:
            self._say(error.message, fg="yellow")
        except ToolCallError as error:
            self._calls[-1]["error"] = str(error)
            self._say(f"Refused: {error}", fg="yellow")
        except ToolFailed as error:
            self._calls[-1]["error"] = str(error)
            self._say(f"Failed: {error}", fg="red")

    def _call(self, line: str) -> None:
        name, rest = (*line.split(maxsplit=1), "")[:2]
        known = line.startswith("/") or any(spec.name == name for spec in self._tools)
        if self._last is not None and not known:
            name, given = self._last.name, {self._last.arg: _unquoted(line)} if self._last.arg else {}
        else:
            given = _read(found_tool(self._tools, name), rest.strip())
        self._calls.append({"tool": name, "input": given})
        output = self._session.call_tool(name, given)
        self._calls[-1]["output"] = output.model_dump()
        print_blocks(output.blocks, self._images, name, err=self._err)
        print_outcome(output, err=self._err)
        self._total += output.reward or 0.0
        self._finished = output.finished

    def _print_prompt(self) -> None:
        print_blocks(self._session.get_prompt(), self._images, "prompt", err=self._err)

    def _print_help(self) -> None:
        self._print_tools()
        more = LAST_MESSAGE if self._last else ""
        self._say("\n" + HOW.format(example=_example(self._tools)) + more)

    def _print_tools(self) -> None:
        for spec in self._tools:
            last = self._last is not None and spec.name == self._last.name
            self._say(f"  {usage(spec)}  {shortened(spec.description)}{LAST if last else ''}", fg="cyan")

    def _say(self, text: str, **style: Any) -> None:
        say(text, err=self._err, **style)


def _example(tools: list[ToolSpec]) -> str:
    spec = tools[0] if tools else ToolSpec(name="submit", description="", input_schema=None)
    return example(spec)


def _read(spec: ToolSpec, text: str) -> dict[str, Any]:
    """Reads the input of a tool from the rest of a line."""
    if text.startswith("{"):
        try:
            return tool_input(spec, (), json.loads(text))
        except json.JSONDecodeError as error:
            raise WrongUsage(f"Not valid JSON: {error}") from None
    schema: Mapping[str, Any] = spec.input_schema or {}
    names, required = list(schema.get("properties") or {}), schema.get("required") or []
    only = required if len(required) == 1 else names
    words = []
    if text and len(only) == 1 and not text.startswith(tuple(f"{name}=" for name in names)):
        named = "|".join(re.escape(name) for name in names if name != only[0]) or "$."
        value, text = (*re.split(rf"\s+(?=(?:{named})=)", text, maxsplit=1), "")[:2]
        words = [f"{only[0]}={_unquoted(value)}"]
    try:
        return tool_input(spec, [*words, *shlex.split(_as_words(text))])
    except ValueError as error:
        raise WrongUsage(f"The quotes do not match: {error}") from None


def _unquoted(text: str) -> str:
    """A value without the triple quotes around it, and without the line end after the first."""
    if len(text) < 2 * len(QUOTES) or not (text.startswith(QUOTES) and text.endswith(QUOTES)):
        return text
    return text.removeprefix(QUOTES).removesuffix(QUOTES).removeprefix("\n")


def _as_words(text: str) -> str:
    """Replaces triple quotes by quotes of the shell."""
    parts = text.split(QUOTES)
    if len(parts) % 2 == 0:
        raise ValueError("triple quotes are not closed")
    return "".join(
        shlex.quote(part.removeprefix("\n")) if inside % 2 else part for inside, part in enumerate(parts)
    )


def _lines(err: bool, tools: list[str]) -> Iterator[str]:
    """Lines from the terminal or a pipe; a value of several lines comes as one."""
    edited = sys.stdin.isatty() and sys.stdout.isatty() and not err
    if edited:
        _complete(tools)

    def read(prompt: str) -> str | None:
        return _edited(prompt) if edited else _plain(prompt, err)

    while (line := read("> ")) is not None:
        while _goes_on(line) and (more := read("… ")) is not None:
            line = f"{line.rstrip(chr(10))}\n{more}"
        yield line.strip()


def _goes_on(line: str) -> bool:
    """Whether triple quotes or a JSON object are not closed yet."""
    given = line.strip().partition(" ")[2].lstrip()
    if not given.startswith("{"):
        return line.count(QUOTES) % 2 == 1
    try:
        json.loads(given)
    except json.JSONDecodeError as error:
        return error.pos >= len(given.rstrip())
    return False


def _edited(prompt: str) -> str | None:
    try:
        return input(prompt)
    except (EOFError, KeyboardInterrupt):
        return None


def _plain(prompt: str, err: bool) -> str | None:
    click.echo(prompt, nl=False, err=err)
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
    words = [f"{word} " for word in (*tools, *COMMANDS)]
    readline.set_completer_delims(" ")
    readline.set_completer(lambda text, n: [*(word for word in words if word.startswith(text)), None][n])
    readline.parse_and_bind("tab: complete")
