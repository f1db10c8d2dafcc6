"""`ors call`: one tool call."""

from collections.abc import Sequence
from pathlib import Path

import click

from ors import JSONObject
from ors.cli.errors import WrongUsage
from ors.cli.inputs import found_tool, tool_input
from ors.cli.options.session import Choice, opening
from ors.cli.options.shared import JSON, WHERE, Command, as_json
from ors.cli.output.printing import print_blocks, print_json, print_outcome
from ors.cli.targets.resolve import as_url


@click.command(
    cls=Command,
    examples=[
        "ors call adder submit answer=3",
        "ors call http://127.0.0.1:8080 submit --input '{\"answer\": 3}' --index 5 --json",
    ],
)
@WHERE
@click.argument("tool")
@click.argument("words", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--input", "given", type=JSON, help="The tool's input: JSON, @file, or - for stdin.")
@opening
@click.option("--session", metavar="ID", help="Use this open session, and leave it open.")
@click.option("--keep", is_flag=True, help="Keep the new session open, and print its id.")
@as_json
def call(
    tool: str,
    words: Sequence[str],
    given: JSONObject | None,
    choice: Choice,
    keep: bool,
    images: Path | None,
    as_json: bool,
) -> None:
    """Call one TOOL on a task.

    Give its input as key=value words, as JSON, or both. It is checked against the tool's parameters before
    it is sent. TOOL may also be the tool for the agent's last message (@terminal).
    """
    if (keep or choice.session) and as_url(choice.where) is None:
        raise WrongUsage("--keep and --session need a URL: sessions of a TARGET end with this command")
    with choice.opened(keep=keep) as session:
        spec = found_tool(session.list_tools(terminal=True), tool)
        output = session.call_tool(tool, tool_input(spec, words, given))
        sid = session.sid if keep else None
    if as_json:
        print_json({**output.model_dump(), **({"session": sid} if sid else {})})
        return
    print_blocks(output.blocks, images, tool)
    print_outcome(output)
    if sid:
        click.echo(f"session: {sid}")
