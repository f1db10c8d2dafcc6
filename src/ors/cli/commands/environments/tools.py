"""`ors tools`: the tools of an environment and their parameters."""

from typing import Any

import click

from ors import ToolSpec
from ors.cli.errors import clean
from ors.cli.inputs import found_tool
from ors.cli.options.shared import WHERE, Command, api_key, as_json, environment
from ors.cli.output.printing import print_json, print_table, shortened, signature
from ors.cli.targets.connect import chosen, connected, opened
from ors.client import Environment, TerminalToolSpec

Tools = tuple[list[ToolSpec], TerminalToolSpec | None]


@click.command(
    cls=Command,
    examples=["ors tools adder", "ors tools http://127.0.0.1:8080 submit", "ors tools adder --index 0"],
)
@WHERE
@click.argument("tool", required=False)
@environment
@click.option("--split", metavar="NAME", help="Split of the task of --index.  [default: the first]")
@click.option("--index", type=click.IntRange(min=0), help="Also list the tools that only this task has.")
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
        print_json(_as_json(found_tool(found, tool), terminal))
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
