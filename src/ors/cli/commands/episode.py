"""`ors prompt`, `ors call`: one step of an episode."""

from collections.abc import Sequence
from pathlib import Path

import click

from ors import JSONObject
from ors.cli.errors import Wrong
from ors.cli.inputs import found_tool, tool_input
from ors.cli.options.session import Choice, opening
from ors.cli.options.shared import JSON, WHERE, Command, as_json
from ors.cli.output import print_blocks, print_json, print_outcome
from ors.cli.targets import as_url


@click.command(
    cls=Command, examples=["ors prompt adder --index 3", "ors prompt http://127.0.0.1:8080 --json"]
)
@WHERE
@opening
@as_json
def prompt(choice: Choice, images: Path, as_json: bool) -> None:
    """Show what an agent is told first.

    Images are saved as files. With --json they are printed, in base64, as the server sends them.
    """
    with choice.opened() as session:
        blocks = session.get_prompt()
    if as_json:
        print_json([block.model_dump() for block in blocks])
    else:
        print_blocks(blocks, images, "prompt")


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
@click.option("--session", metavar="ID", help="Call in this open session, and leave it open.")
@click.option("--keep", is_flag=True, help="Leave the new session open, and print its id.")
@as_json
def call(
    tool: str,
    words: Sequence[str],
    given: JSONObject | None,
    choice: Choice,
    keep: bool,
    images: Path,
    as_json: bool,
) -> None:
    """Call one TOOL on a task.

    Its input is given as key=value words, as JSON, or both. It is checked against the tool's parameters
    before it is sent. TOOL may be the one for an agent's last message, too (@terminal).
    """
    if (keep or choice.session) and as_url(choice.where) is None:
        raise Wrong("--keep and --session need a URL: a TARGET is gone when this command ends")
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
