"""Summary of a server: environments, splits, task counts and tools."""

import time
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

import click

from ors.cli.errors import clean
from ors.cli.output.printing import number, print_table
from ors.client import ORS, Environment
from ors.errors import ORSError, TransportError


@dataclass(frozen=True)
class Offered:
    """One environment. A task count is None if counting failed or took too long."""

    name: str
    splits: dict[str, int | None]
    tools: list[str]
    terminal_tool: str | None = None
    problem: str | None = None
    """Why tasks could not be counted."""

    def as_json(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value is not None}


def offered(client: ORS, counter: ORS | None = None, seconds: float = inf) -> list[Offered]:
    """Lists the environments of a server.

    `counter` counts the tasks; it may have shorter timeouts. Counting stops after `seconds`, because many
    environments list all their tasks to count them, which can take minutes.
    """
    found, deadline = [], inf
    for name in client.list_environments():
        env, counting = client.environment(name), (counter or client).environment(name)
        splits = dict.fromkeys(env.list_splits(), None)
        deadline = min(deadline, time.monotonic() + seconds)  # starts with the first count
        counts = {split: _count(counting, split, deadline) for split in splits}
        splits = {split: count if isinstance(count, int) else None for split, count in counts.items()}
        problem = next((text for text in counts.values() if isinstance(text, str)), None)
        terminal = env.terminal_tool()
        tools = [spec.name for spec in env.list_tools()]
        found.append(Offered(name, splits, tools, terminal.name if terminal else None, problem))
    return found


def _count(env: Environment, split: str, deadline: float) -> int | str | None:
    """Number of tasks, or why they cannot be counted; None if it takes too long."""
    if time.monotonic() > deadline:
        return None
    try:
        return env.num_tasks(split)
    except TransportError:
        return None
    except ORSError as error:
        return f"{split}: {clean(' '.join(str(error).split()))}"


def print_offered(found: list[Offered]) -> None:
    rows = [
        (
            one.name,
            ", ".join(
                f"{split} {'?' if count is None else number(count)}" for split, count in one.splits.items()
            ),
            ", ".join([*one.tools, *([f"{one.terminal_tool} (terminal)"] if one.terminal_tool else [])]),
        )
        for one in found
    ]
    print_table(("ENVIRONMENT", "TASKS", "TOOLS"), rows)
    if any(count is None for one in found for count in one.splits.values()):
        click.echo("\n?: not counted, or not in time. See `ors tasks … --split NAME`.", err=True)
    for one in found:
        if one.problem is not None:
            click.echo(f"{one.name}, {one.problem}", err=True)
