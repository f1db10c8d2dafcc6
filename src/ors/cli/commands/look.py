"""`ors list`, `ors tasks`, `ors tools`, `ors prompt` and `ors call`: one look at an environment."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ors import JSONObject
from ors.cli.errors import WrongUsage, clean, wrong_usage
from ors.cli.options import shared
from ors.cli.options.shared import WHERE, Command, api_key, as_json, environment, opening
from ors.cli.output import printing
from ors.cli.output.banner import offered, print_offered
from ors.cli.output.printing import number, print_blocks, print_json, print_table, shortened
from ors.cli.targets.connect import chosen, connected, opened
from ors.cli.targets.resolve import installed, parameters
from ors.client import ORS, Environment
from ors.schemas import find_tool, signature, typed_input

MOST_COLUMNS = 5


@click.command(
    "list",
    cls=Command,
    examples=[
        "ors list adder",
        "ors list http://127.0.0.1:8080 --json",
        "ors list --installed",
        "ors list adder --config",
    ],
)
@click.argument("where", metavar="URL|TARGET", type=shared.TARGET, required=False)
@parameters
@click.option("--installed", "by_name", is_flag=True, help="List the environments of installed packages.")
@click.option("--config", is_flag=True, help="List the parameters of environments, for --set.")
@api_key
@as_json
def list_command(where: str | None, by_name: bool, config: bool, api_key: str | None, as_json: bool) -> None:
    """List environments with their tasks and tools."""
    if by_name == (where is not None):
        raise WrongUsage("Give a URL or TARGET, or --installed")
    if where is None:
        _print_installed(as_json)
        return
    with connected(where, api_key) as client:
        if config:
            _print_parameters(client, as_json)
            return
        found = offered(client)
    if as_json:
        print_json([one.as_json() for one in found])
    else:
        print_offered(found)


def _print_installed(as_json: bool) -> None:
    found = [(one.name, one.version, one.package, one.code) for one in installed()]
    columns = ("name", "version", "package", "code")
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in found])
    elif found:
        print_table([column.upper() for column in columns], found)
    else:
        click.echo("No installed package offers an environment.", err=True)


def _print_parameters(client: ORS, as_json: bool) -> None:
    told = {name: client.environment(name).description(counts=False) for name in client.list_environments()}
    found = {name: each["parameters"] for name, each in told.items() if each and "parameters" in each}
    if as_json:
        print_json(found)
        return
    rows = []
    for name, each in found.items():
        schema, values = each["schema"], each["values"]
        for line, (key, about) in zip(signature(schema), schema["properties"].items(), strict=True):
            rows.append((name, line, shortened(values[key]), shortened(about.get("description", ""))))
    print_table(("ENVIRONMENT", "PARAMETER", "VALUE", "DESCRIPTION"), rows)


@click.command(
    cls=Command,
    examples=["ors tasks adder --split test --page 2", "ors tasks http://127.0.0.1:8080 --index 3"],
)
@WHERE
@environment
@click.option("--split", metavar="NAME", help="Split to list.  [default: the first]")
@click.option("--page", type=shared.COUNT, default=1, help="Page to show.")
@click.option("--page-size", "size", type=shared.COUNT, default=20, help="Tasks per page.")
@click.option("--index", type=shared.INDEX, help="Show this task in full.")
@api_key
@as_json
def tasks(
    where: str, env: str | None, split: str | None, index: int | None, api_key: str | None, **how: Any
) -> None:
    """List the tasks of a split, or show one."""
    with connected(where, api_key) as client:
        source = chosen(client, env)
        split = split or source.list_splits()[0]
        if index is not None:
            print_json(source.get_task(split, index).task_spec)
        else:
            _print_page(source, split, **how)


def _print_page(env: Environment, split: str, page: int, size: int, as_json: bool) -> None:
    total, start = env.num_tasks(split), (page - 1) * size
    if start and start >= total:
        raise WrongUsage(f"There is no page {page}: {split} has {number(total)} tasks, {size} per page")
    found = env.get_task_range(split, start, min(start + size, total))
    specs = {start + n: task.task_spec for n, task in enumerate(found)}
    if as_json:
        listed = [{"index": index, "task_spec": spec} for index, spec in specs.items()]
        print_json({"environment": env.name, "split": split, "num_tasks": total, "tasks": listed})
        return
    keys = list(dict.fromkeys(key for spec in specs.values() for key in spec))
    if len(keys) <= MOST_COLUMNS:
        cells = {
            n: [shortened(spec[key]) if key in spec else "" for key in keys] for n, spec in specs.items()
        }
    else:
        keys, cells = ["TASK"], {n: [shortened(spec)] for n, spec in specs.items()}
    print_table(("INDEX", *map(clean, keys)), [(str(n), *row) for n, row in cells.items()])
    pages = max(1, -(-total // size))
    click.echo(f"\nPage {page} of {number(pages)}; {split} has {number(total)} tasks.")


@click.command(
    cls=Command,
    examples=["ors tools adder", "ors tools http://127.0.0.1:8080 submit", "ors tools adder --index 0"],
)
@WHERE
@click.argument("tool", required=False)
@environment
@click.option("--split", metavar="NAME", help="Split of the task of --index.  [default: the first]")
@click.option("--index", type=shared.INDEX, help="Also list the tools that only this task has.")
@api_key
@as_json
def tools(
    where: str,
    tool: str | None,
    env: str | None,
    split: str | None,
    index: int | None,
    api_key: str | None,
    as_json: bool,
) -> None:
    """List tools and their parameters, or show one TOOL in full."""
    with connected(where, api_key) as client:
        source = chosen(client, env)
        required = source.required_secrets()
        if index is None:
            found, terminal = source.list_tools(terminal=True), source.terminal_tool()
        else:
            with opened(source, split, index, None) as session:
                found, terminal = session.list_tools(terminal=True), session.terminal_tool()
    last = None if terminal is None else terminal.name
    shown = {
        spec.name: spec.model_dump() | ({"terminal": True} if spec.name == last else {}) for spec in found
    }
    if tool is not None:
        with wrong_usage(ValueError):
            print_json(shown[find_tool(found, tool).name])
    elif as_json:
        print_json(list(shown.values()))
    else:
        rows = [
            (spec.name, ", ".join(signature(spec.input_schema)) or "-", shortened(spec.description))
            for spec in found
        ]
        print_table(("TOOL", "PARAMETERS", "DESCRIPTION"), rows)
        if last is not None:
            click.echo(f"\n{clean(last)} takes the agent's last message. Agents do not see it as a tool.")
        if required:
            click.echo(clean(f"\nRequired secrets: {', '.join(required)}"))


@click.command(
    cls=Command, examples=["ors prompt adder --index 3", "ors prompt http://127.0.0.1:8080 --json"]
)
@WHERE
@opening
@as_json
def prompt(choice: shared.Choice, images: Path | None, as_json: bool) -> None:
    """Show the prompt of a task.

    Images are saved as files. With --json they are printed in base64, as the server sends them.
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
@click.option("--input", "given", type=shared.JSON, help="The tool's input: JSON, @file, or - for stdin.")
@opening
@as_json
def call(
    tool: str,
    words: Sequence[str],
    given: JSONObject | None,
    choice: shared.Choice,
    images: Path | None,
    as_json: bool,
) -> None:
    """Call one TOOL on a task.

    Give its input as key=value words, as JSON, or both. It is checked against the tool's parameters before
    it is sent. TOOL may also be the tool for the agent's last message (@terminal).
    """
    with choice.opened() as session:
        with wrong_usage(ValueError):
            given = typed_input(find_tool(session.list_tools(terminal=True), tool), words, given)
        output = session.call_tool(tool, given)
    if as_json:
        print_json(output.model_dump())
        return
    print_blocks(output.blocks, images, tool)
    printing.print_outcome(output)
