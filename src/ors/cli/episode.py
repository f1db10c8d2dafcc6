"""`ors prompt`, `ors call`: one step of an episode."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ors import JSONObject, ToolOutput
from ors.cli.connect import chosen, connected, opened
from ors.cli.faults import Wrong
from ors.cli.inputs import found_tool, tool_input
from ors.cli.options import (
    JSON,
    URL_OR_TARGET,
    Command,
    api_key,
    as_json,
    environment,
    images,
    secrets,
    task_choice,
)
from ors.cli.output import number, print_blocks, print_json, shortened
from ors.cli.targets import as_url
from ors.client import Session


@dataclass(frozen=True)
class Choice:
    """Which session a command works in: a new one on a task, or one that is open."""

    where: str
    env: str | None
    api_key: str | None
    split: str | None
    index: int
    task: JSONObject | None
    secret: Sequence[tuple[str, str]]
    session: str | None = None

    @contextmanager
    def opened(self, *, keep: bool = False) -> Iterator[Session]:
        """The session, open; ended afterwards unless it is to be kept."""
        with connected(self.where, self.api_key) as client:
            env = chosen(client, self.env)
            if self.session is not None:
                made = env.attach(self.session)
            else:
                made = opened(env, self.split, self.index, self.task, self.secret)
            if not keep:
                with made:
                    yield made
            else:
                yield made.start()


@click.command(
    cls=Command, examples=["ors prompt adder --index 3", "ors prompt http://127.0.0.1:8080 --json"]
)
@click.argument("where", metavar="URL|TARGET", type=URL_OR_TARGET)
@environment
@task_choice
@secrets
@images
@api_key
@as_json
def prompt(images: Path, as_json: bool, **choice: Any) -> None:
    """Show what an agent is told first.

    Images are saved as files. With --json they are printed, in base64, as the server sends them.
    """
    with Choice(**choice).opened() as session:
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
@click.argument("where", metavar="URL|TARGET", type=URL_OR_TARGET)
@click.argument("tool")
@click.argument("words", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--input", "given", type=JSON, help="The tool's input: JSON, @file, or - for stdin.")
@environment
@task_choice
@click.option("--session", metavar="ID", help="Call in this open session, and leave it open.")
@click.option("--keep", is_flag=True, help="Leave the new session open, and print its id.")
@secrets
@images
@api_key
@as_json
def call(
    tool: str,
    words: Sequence[str],
    given: JSONObject | None,
    keep: bool,
    images: Path,
    as_json: bool,
    **choice: Any,
) -> None:
    """Call one TOOL on a task.

    Its input is given as key=value words, as JSON, or both. It is checked against the tool's parameters
    before it is sent.
    """
    chosen_session = Choice(**choice)
    if (keep or chosen_session.session) and as_url(chosen_session.where) is None:
        raise Wrong("--keep and --session need a URL: a TARGET is gone when this command ends")
    with chosen_session.opened(keep=keep) as session:
        spec = found_tool(session.list_tools(), tool)
        output = session.call_tool(tool, tool_input(spec, words, given))
        sid = session.sid if keep else None
    if as_json:
        print_json({**output.model_dump(), **({"session": sid} if sid else {})})
        return
    print_blocks(output.blocks, images, tool)
    print_outcome(output)
    if sid:
        click.echo(f"session: {sid}")


def print_outcome(output: ToolOutput, *, err: bool = False) -> None:
    """What stands beside the blocks of an output."""
    if output.metadata:
        click.echo(f"metadata: {shortened(output.metadata, 1000)}", err=err)
    if output.reward is not None:
        click.echo(f"reward: {number(output.reward)}", err=err)
    if output.finished:
        click.echo("finished", err=err)
