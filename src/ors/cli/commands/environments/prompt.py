"""`ors prompt`: the prompt of a task."""

from pathlib import Path

import click

from ors.cli.options.session import Choice, opening
from ors.cli.options.shared import WHERE, Command, as_json
from ors.cli.output.printing import print_blocks, print_json


@click.command(
    cls=Command, examples=["ors prompt adder --index 3", "ors prompt http://127.0.0.1:8080 --json"]
)
@WHERE
@opening
@as_json
def prompt(choice: Choice, images: Path | None, as_json: bool) -> None:
    """Show the prompt of a task.

    Images are shown if the terminal can do that, or saved as files. With --json they are printed in base64,
    as the server sends them.
    """
    with choice.opened() as session:
        blocks = session.get_prompt()
    if as_json:
        print_json([block.model_dump() for block in blocks])
    else:
        print_blocks(blocks, images, "prompt")
