"""What a server offers, asked for by a client: environments, splits, task counts, tools."""

import time
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

import click

from ors.cli.output import number, print_table
from ors.client import ORS, Environment
from ors.errors import ORSError

__all__ = ["Offered", "offered", "print_offered"]


@dataclass(frozen=True)
class Offered:
    """One environment. A count is None where the server did not say it, or not in time."""

    name: str
    splits: dict[str, int | None]
    tools: list[str]
    terminal_tool: str | None = None

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {key: value for key, value in asdict(self).items() if value is not None}


def offered(client: ORS, counter: ORS | None = None, seconds: float = inf) -> list[Offered]:
    """Every environment of a server.

    Tasks are counted by `counter`, which may be less patient, and after `seconds` no more: to count, many
    environments list all their tasks, which may take minutes.
    """
    found, deadline = [], inf
    for name in client.list_environments():
        env, counting = client.environment(name), (counter or client).environment(name)
        splits = dict.fromkeys(env.list_splits(), None)
        deadline = min(deadline, time.monotonic() + seconds)  # from the first count on
        splits = {split: _count(counting, split, deadline) for split in splits}
        terminal = env.terminal_tool()
        tools = [spec.name for spec in env.list_tools()]
        found.append(Offered(name, splits, tools, terminal.name if terminal else None))
    return found


def _count(env: Environment, split: str, deadline: float) -> int | None:
    if time.monotonic() > deadline:
        return None
    try:
        return env.num_tasks(split)
    except ORSError:
        return None


def print_offered(found: list[Offered]) -> None:
    """A table of environments."""
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
        click.echo("\n?: not counted, or not in time; `ors tasks … --split NAME` tells more", err=True)
