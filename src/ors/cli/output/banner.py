"""What a server offers, as `ors list` and the banner of `ors serve` print it."""

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any, TextIO

import click

from ors.cli.errors import clean, report_stream
from ors.cli.output.printing import number, print_table
from ors.client import ORS, Environment, Options
from ors.errors import ORSError, TransportError

COUNTING_SECONDS = 2.0
"""Counting tasks may mean listing them all, so all counts together take no longer; late ones are "?"."""
HASTE = Options(retries=0, request_seconds=COUNTING_SECONDS)
OPEN = (
    "This server needs no API key: anyone who can reach this machine can list all tasks with their answers "
    "and run the tools."
)
UNENCRYPTED = "API keys are sent unencrypted: use --ssl-certfile, or an https proxy."
TRY = "Try: curl -s {header}{url}/{name}/tools"


@dataclass(frozen=True)
class Offered:
    """One environment. A task count is None if counting failed or took too long."""

    name: str
    splits: dict[str, int | None] = field(default_factory=dict)
    tools: Sequence[str] = ()
    terminal_tool: str | None = None
    problem: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value is not None}


def offered(client: ORS, seconds: float = inf) -> list[Offered]:
    """Lists the environments of a server. Counts their tasks for at most so many seconds."""
    until = time.monotonic() + seconds
    return [_offered(client.environment(name), until) for name in client.list_environments()]


def _offered(env: Environment, until: float) -> Offered:
    terminal, tools = env.terminal_tool(), [spec.name for spec in env.list_tools()]
    splits: dict[str, int | None] = {}
    problem = None
    for split in env.list_splits():
        splits[split] = None
        try:
            if time.monotonic() < until:
                splits[split] = env.num_tasks(split)
        except TransportError:
            pass  # it took too long
        except ORSError as error:
            problem = problem or f"{split}: {clean(' '.join(str(error).split()))}"
    return Offered(env.name, splits, tools, terminal.name if terminal else None, problem)


def print_offered(found: list[Offered], lacking: Callable[[str], str] = lambda problem: "") -> None:
    rows = []
    for one in found:
        counts = [f"{split} {'?' if count is None else number(count)}" for split, count in one.splits.items()]
        terminal = [f"{one.terminal_tool} (terminal)"] if one.terminal_tool else []
        rows.append((one.name, ", ".join(counts), ", ".join([*one.tools, *terminal])))
    print_table(("ENVIRONMENT", "TASKS", "TOOLS"), rows)
    if any(count is None for one in found for count in one.splits.values()):
        click.echo("\n?: not counted, or not in time. See `ors tasks … --split NAME`.", err=True)
    for one in found:
        if one.problem is not None:
            click.echo(f"{one.name}, {one.problem}{lacking(one.problem)}", err=True)
        elif one.splits and set(one.splits.values()) == {0}:
            click.echo(f"{one.name} has no tasks in any split{lacking('')}", err=True)


@dataclass(frozen=True)
class Banner:
    inspector: bool
    """Whether the server offers its inspector."""
    private: bool
    """Whether only this machine can reach it."""
    key: str | None = field(default=None, repr=False)
    """A key that the server accepts, if it needs one."""
    notes: Sequence[str] = ()
    advice: str = TRY
    """The last lines, with `{url}`, the `{name}` of the first environment, and the `{header}` of the key."""
    as_json: bool = False
    lacking: Callable[[str], str] = lambda problem: ""

    def show(self, urls: Sequence[str], names: Sequence[str]) -> None:
        """Prints the URLs, and the environments as the server lists them; `names` if it cannot be asked."""
        # In a thread, so that neither counting tasks nor a blocked standard output delays the server.
        threading.Thread(target=self._show, args=(urls, names, report_stream()), daemon=True).start()

    def _show(self, urls: Sequence[str], names: Sequence[str], report: TextIO | None) -> None:
        local = urls[0].replace("0.0.0.0", "127.0.0.1").replace("[::]", "[::1]")
        try:
            if not self.as_json:
                self._print_addresses(urls, local)
            try:
                with ORS(local, self.key, options=HASTE) as client:
                    found = offered(client, COUNTING_SECONDS)
            except ORSError:
                # It cannot reach itself: a proxy, a certificate for another name, or it is stopping.
                found = [Offered(name) for name in names]
            if self.as_json:
                listing = {"url": urls[0], "urls": urls, "environments": [one.as_json() for one in found]}
                click.echo(json.dumps(listing), file=report)
            else:
                self._print(local, found)
        except OSError:
            return  # standard output is closed

    def _print_addresses(self, urls: Sequence[str], local: str) -> None:
        if self.inspector:
            click.echo(f"Inspector: {local}/-/")
        for url in urls:
            click.echo(f"Serving on {url} (stop with Ctrl-C)")
        click.echo()

    def _print(self, local: str, found: list[Offered]) -> None:
        print_offered(found, self.lacking)
        if not self.private:
            click.echo("\n" + (UNENCRYPTED if self.key and local.startswith("http:") else OPEN))
        for note in self.notes:
            click.echo(f"\n{note}")
        header = '-H "X-API-Key: $ORS_API_KEY" ' if self.key else ""
        click.echo("\n" + self.advice.format(url=local, name=found[0].name, header=header))
