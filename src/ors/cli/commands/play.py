"""`ors play`: plays an episode by hand."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import click

from ors import ToolSpec
from ors.cli.options.shared import WHERE, Choice, Command, as_json, opening
from ors.cli.output.printing import print_blocks, print_json, print_outcome, reward_text, say, shortened
from ors.client import Session, TerminalToolSpec
from ors.errors import ToolCallError, ToolFailed
from ors.rollouts.agents.human import read_line, typed_line
from ors.rollouts.episodes.rules import reduce_components
from ors.rollouts.records.statistics import counted
from ors.schemas import example, find_tool, typed_call, unquoted, usage

LAST = " (terminal: takes the last message)"
HOW = (
    'Type a tool and its input, for example: {example}. Put text of several lines between """ and """. '
    "Other commands: help, /tools, /prompt, quit (or Ctrl-D)."
)
LAST_MESSAGE = " Text that begins with no tool's name is the last message."
COMMANDS = ("/tools", "/prompt", "/help", "/quit", "/exit", "help", "quit", "exit")
"""Those without a slash are commands unless a tool has that name."""


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
    parameter, or the only one that is required. With a @terminal tool, plain text is the last message. Put a
    value of several lines between triple double quotes; a JSON object may have several lines. Lines may also
    come from a pipe. With --json, standard output has only the report; everything else goes
    to standard error.
    """
    with choice.opened() as session:
        game = Game(session, images, err=as_json)
        try:
            game.run()
        finally:
            with suppress(OSError):  # the terminal may be closed
                game.print_total()
    if as_json:
        print_json({"split": session.split, "index": session.index, **game.report()})


class Game:
    def __init__(self, session: Session, images: Path | None, *, err: bool) -> None:
        self._session = session
        self._images = images
        self._err = err
        self._tools: list[ToolSpec] = []
        self._last: TerminalToolSpec | None = None
        self._calls: list[dict[str, Any]] = []
        self._total = 0.0
        self._named: list[dict[str, float]] = []
        self._finished = False

    def run(self) -> None:
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
        report = {"calls": self._calls, "total": self._total, "finished": self._finished}
        components = reduce_components(self._named, "sum")
        return report | ({"components": components} if self._named else {})

    def print_total(self) -> None:
        ending = "The episode is finished." if self._finished else "The episode is not finished."
        total = reward_text(self._total, reduce_components(self._named, "sum"))
        self._say(f"\n{ending} Total reward: {total}, in {counted(len(self._calls), 'call')}.", bold=True)

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
        except ValueError as error:
            self._say(str(error), fg="yellow")
        except (ToolCallError, ToolFailed) as error:
            self._calls[-1]["error"] = str(error)
            what, colour = ("Failed", "red") if isinstance(error, ToolFailed) else ("Refused", "yellow")
            self._say(f"{what}: {error}", fg=colour)

    def _call(self, line: str) -> None:
        name, rest = (*line.split(maxsplit=1), "")[:2]
        known = line.startswith("/") or any(spec.name == name for spec in self._tools)
        if self._last is not None and not known:
            name, given = self._last.name, {self._last.arg: unquoted(line)} if self._last.arg else {}
        else:
            given = typed_call(find_tool(self._tools, name), rest.strip())
        self._calls.append({"tool": name, "input": given})
        output = self._session.call_tool(name, given)
        self._calls[-1]["output"] = output.model_dump()
        print_blocks(output.blocks, self._images, name, err=self._err)
        print_outcome(output, err=self._err)
        self._total += output.reward or 0.0
        self._named += [output.rewards] if output.rewards else []
        self._finished = output.finished

    def _print_prompt(self) -> None:
        print_blocks(self._session.get_prompt(), self._images, "prompt", err=self._err)

    def _print_help(self) -> None:
        self._print_tools()
        more = LAST_MESSAGE if self._last else ""
        self._say("\n" + HOW.format(example=example(self._tools[0]) if self._tools else "submit") + more)

    def _print_tools(self) -> None:
        for spec in self._tools:
            last = self._last is not None and spec.name == self._last.name
            self._say(f"  {usage(spec)}  {shortened(spec.description)}{LAST if last else ''}", fg="cyan")

    def _say(self, text: str, **style: Any) -> None:
        say(text, err=self._err, **style)


def _lines(err: bool, tools: list[str]) -> Iterator[str]:
    """Lines from the terminal or a pipe; a value of several lines comes as one."""
    if sys.stdin.isatty() and sys.stdout.isatty() and not err:
        _complete(tools)
    with suppress(EOFError, KeyboardInterrupt):
        while True:
            yield typed_line(partial(read_line, err=err))


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
