"""`ors list`, `ors tasks`, `ors tools`, `ors prompt` and `ors call`: one look at an environment."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ors import JSONObject, ToolSpec
from ors.cli.errors import WrongUsage, clean, wrong_usage
from ors.cli.options.shared import (
    COUNT,
    INDEX,
    JSON,
    TARGET,
    WHERE,
    Choice,
    Command,
    api_key,
    as_json,
    environment,
    opening,
)
from ors.cli.output.banner import offered, print_offered
from ors.cli.output.printing import (
    number,
    print_blocks,
    print_json,
    print_outcome,
    print_table,
    shortened,
)
from ors.cli.targets.connect import chosen, connected, opened
from ors.cli.targets.resolve import installed
from ors.cli.targets.variants import parameters
from ors.client import ORS, Environment, TerminalToolSpec
from ors.schemas import find_tool, signature, typed_input

MOST_COLUMNS = 5


@click.command(
    cls=Command,
    examples=["ors tasks adder --split test --page 2", "ors tasks http://127.0.0.1:8080 --index 3"],
)
@WHERE
@environment
@click.option("--split", metavar="NAME", help="Split to list.  [default: the first]")
@click.option("--page", type=COUNT, default=1, help="Page to show.")
@click.option("--page-size", type=COUNT, default=20, help="Tasks per page.")
@click.option("--index", type=INDEX, help="Show this task in full.")
@api_key
@as_json
def tasks(
    where: str,
    env: str | None,
    split: str | None,
    page: int,
    page_size: int,
    index: int | None,
    api_key: str | None,
    as_json: bool,
) -> None:
    """List the tasks of a split, or show one."""
    with connected(where, api_key) as client:
        source = chosen(client, env)
        split = split or source.list_splits()[0]
        if index is not None:
            print_json(source.get_task(split, index).task_spec)
            return
        listed = _page(source, split, page, page_size)
    if as_json:
        print_json(listed)
    else:
        _print_page(listed, page, page_size)


def _page(env: Environment, split: str, page: int, size: int) -> dict[str, Any]:
    total = env.num_tasks(split)
    start = (page - 1) * size
    if start and start >= total:
        raise WrongUsage(f"There is no page {page}: {split} has {number(total)} tasks, {size} per page")
    found = env.get_task_range(split, start, min(start + size, total))
    listed = [{"index": start + n, "task_spec": task.task_spec} for n, task in enumerate(found)]
    return {"environment": env.name, "split": split, "num_tasks": total, "tasks": listed}


def _print_page(listed: dict[str, Any], page: int, size: int) -> None:
    specs = [(str(task["index"]), task["task_spec"]) for task in listed["tasks"]]
    keys = list(dict.fromkeys(key for _, spec in specs for key in spec))
    if len(keys) <= MOST_COLUMNS:
        rows = [
            (index, *(shortened(spec[key]) if key in spec else "" for key in keys)) for index, spec in specs
        ]
        print_table(("INDEX", *(clean(key) for key in keys)), rows)
    else:
        print_table(("INDEX", "TASK"), [(index, shortened(spec)) for index, spec in specs])
    pages = max(1, -(-listed["num_tasks"] // size))
    click.echo(
        f"\nPage {page} of {number(pages)}; {listed['split']} has {number(listed['num_tasks'])} tasks."
    )


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
@click.argument("where", metavar="URL|TARGET", type=TARGET, required=False)
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


Tools = tuple[list[ToolSpec], TerminalToolSpec | None]


@click.command(
    cls=Command,
    examples=["ors tools adder", "ors tools http://127.0.0.1:8080 submit", "ors tools adder --index 0"],
)
@WHERE
@click.argument("tool", required=False)
@environment
@click.option("--split", metavar="NAME", help="Split of the task of --index.  [default: the first]")
@click.option("--index", type=INDEX, help="Also list the tools that only this task has.")
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
        found, terminal = _of_all(source) if index is None else _of_task(source, split, index)
        required = source.required_secrets()
    if tool is not None:
        with wrong_usage(ValueError):
            spec = find_tool(found, tool)
        print_json(_as_json(spec, terminal))
    elif as_json:
        print_json([_as_json(spec, terminal) for spec in found])
    else:
        rows = [
            (spec.name, ", ".join(signature(spec.input_schema)) or "-", shortened(spec.description))
            for spec in found
        ]
        print_table(("TOOL", "PARAMETERS", "DESCRIPTION"), rows)
        if terminal is not None:
            click.echo(
                f"\n{clean(terminal.name)} takes the agent's last message. Agents do not see it as a tool."
            )
        if required:
            click.echo(clean(f"\nRequired secrets: {', '.join(required)}"))


def _of_all(env: Environment) -> Tools:
    return env.list_tools(terminal=True), env.terminal_tool()


def _of_task(env: Environment, split: str | None, index: int) -> Tools:
    with opened(env, split, index, None) as session:
        return session.list_tools(terminal=True), session.terminal_tool()


def _as_json(spec: ToolSpec, terminal: TerminalToolSpec | None) -> dict[str, Any]:
    last = terminal is not None and spec.name == terminal.name
    return {**spec.model_dump(), **({"terminal": True} if last else {})}


@click.command(
    cls=Command, examples=["ors prompt adder --index 3", "ors prompt http://127.0.0.1:8080 --json"]
)
@WHERE
@opening
@as_json
def prompt(choice: Choice, images: Path | None, as_json: bool) -> None:
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
@click.option("--input", "given", type=JSON, help="The tool's input: JSON, @file, or - for stdin.")
@opening
@as_json
def call(
    tool: str,
    words: Sequence[str],
    given: JSONObject | None,
    choice: Choice,
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
    print_outcome(output)
