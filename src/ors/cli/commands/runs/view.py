"""`ors view`: shows recorded runs in the browser."""

from pathlib import Path

import click

from ors.cli.options.shared import Command
from ors.cli.page_server import page_flags, serve_page
from ors.inspector import RunFolder, StandIn


@click.command("view", cls=Command, examples=["ors view runs", "ors view runs/first --port 8090"])
@click.argument(
    "folder", metavar="FOLDER", type=click.Path(exists=True, file_okay=False, readable=True, path_type=Path)
)
@page_flags
def view(folder: Path, port: int, opening: bool) -> None:
    """Look at recorded runs in a browser: episodes, conversations, rewards. Compare two runs.

    FOLDER is a run, or holds runs in any depth. This command serves a page on this machine that reads the
    folder and writes nothing. The page works only at the printed address, which contains a token. Runs that
    are still being recorded are followed.
    """
    serve_page(
        StandIn(str(folder.resolve()), RunFolder(folder), command="ors view"), str(folder), port, opening
    )
