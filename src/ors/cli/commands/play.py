"""`ors play`: plays an episode by hand."""

import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import click

from ors.cli.options.shared import WHERE, Choice, Command, as_json, opening
from ors.cli.output.printing import print_blocks, print_json, print_outcome, reward_text, say
from ors.client import Session
from ors.errors import ToolCallError, ToolFailed
from ors.rollouts.agents.human import COMMANDS, Shell, read_line, typed_line
from ors.rollouts.episodes.rules import reduce_components
from ors.rollouts.records.statistics import counted


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
        self._calls: list[dict[str, Any]] = []
        self._total = 0.0
        self._named: list[dict[str, float]] = []
        self._finished = False

    def run(self) -> None:
        self._print_prompt()
        tools, last = self._session.list_tools(terminal=True), self._session.terminal_tool()
        shell = Shell(tools, self._say, self._print_prompt, "plain" if last else None)
        self._say("")
        shell.show_help()
        if sys.stdin.isatty() and sys.stdout.isatty() and not self._err:
            _complete([spec.name for spec in tools])
        with suppress(EOFError, KeyboardInterrupt):
            while not self._finished:
                reply = shell.reply(typed_line(partial(read_line, err=self._err)))
                if reply is not None and reply.calls:
                    self._call(reply.calls[0].name, reply.calls[0].input)
                elif reply is not None and last is not None:
                    self._call(last.name, {last.arg: reply.text} if last.arg else {})

    def report(self) -> dict[str, Any]:
        report = {"calls": self._calls, "total": self._total, "finished": self._finished}
        components = reduce_components(self._named, "sum")
        return report | ({"components": components} if self._named else {})

    def print_total(self) -> None:
        ending = "The episode is finished." if self._finished else "The episode is not finished."
        total = reward_text(self._total, reduce_components(self._named, "sum"))
        self._say(f"\n{ending} Total reward: {total}, in {counted(len(self._calls), 'call')}.", bold=True)

    def _call(self, tool: str, given: dict[str, Any]) -> None:
        made: dict[str, Any] = {"tool": tool, "input": given}
        self._calls.append(made)
        try:
            output = self._session.call_tool(tool, given)
        except (ToolCallError, ToolFailed) as error:
            made["error"] = str(error)
            what, colour = ("Failed", "red") if isinstance(error, ToolFailed) else ("Refused", "yellow")
            self._say(f"{what}: {error}", fg=colour)
            return
        made["output"] = output.model_dump()
        print_blocks(output.blocks, self._images, tool, err=self._err)
        print_outcome(output, err=self._err)
        self._total += output.reward or 0.0
        self._named += [output.rewards] if output.rewards else []
        self._finished = output.finished

    def _print_prompt(self) -> None:
        print_blocks(self._session.get_prompt(), self._images, "prompt", err=self._err)

    def _say(self, text: str, **style: Any) -> None:
        say(text, err=self._err, **style)


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
