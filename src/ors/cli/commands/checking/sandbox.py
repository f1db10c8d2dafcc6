"""`ors sandbox`: what this machine can isolate."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import click

from ors.cli.errors import CommandError
from ors.cli.options.shared import Command, as_json
from ors.cli.output.printing import print_json, print_table
from ors.errors import SandboxUnavailable
from ors.sandbox import SandboxSpec
from ors.sandbox.battery import Verdict, battery
from ors.sandbox.box import open_box

UNCOUNTED = (
    "pipes, and what the kernel needs for files and processes "
    "(refused for that reason: memfd, shared mappings without a file, System V IPC, inotify)"
)
"""Where there are no control groups."""
ISOLATING = ("bwrap", "podman", "docker")


@dataclass(frozen=True)
class BackendRow:
    """One backend on this machine."""

    backend: str
    works: bool
    why_not: str
    uncounted: str = ""
    """Memory that no limit counts here."""
    verdicts: tuple[Verdict, ...] = ()

    @property
    def broken(self) -> list[Verdict]:
        """Attacks that were not blocked."""
        return [verdict for verdict in self.verdicts if not verdict.blocked]


@click.command(cls=Command, examples=["ors sandbox check", "ors sandbox check --quick --json"])
@click.argument("action", type=click.Choice(["check"]))
@click.option("--image", metavar="NAME", help="Image for podman and docker.")
@click.option("--quick", is_flag=True, help="Only open sandboxes; leave the attacks out.")
@as_json
def sandbox(action: str, image: str | None, quick: bool, as_json: bool) -> None:
    """Check how this machine isolates the programs of agents.

    Opens a sandbox on each backend, and attacks it. Prints which backends work here, what helps where one
    does not, the memory that no limit counts, and every attack that was not blocked. The exit code is 1 if
    no backend isolates, or if an attack was not blocked.
    """
    rows = asyncio.run(_rows(image, quick))
    if as_json:
        print_json([{**asdict(row), "verdicts": [asdict(each) for each in row.verdicts]} for row in rows])
    else:
        _print(rows)
    if not any(row.works for row in rows):
        raise CommandError("no backend isolates on this machine")
    if any(row.broken for row in rows):
        raise CommandError("a sandbox on this machine does not hold")


async def _rows(image: str | None, quick: bool) -> list[BackendRow]:
    return [await _row(SandboxSpec(backend=name), image, quick) for name in ISOLATING]  # type: ignore[arg-type]


async def _row(spec: SandboxSpec, image: str | None, quick: bool) -> BackendRow:
    if spec.backend != "bwrap":
        spec = replace(spec, image=image)
    try:
        async with await open_box(spec) as box:
            uncounted = UNCOUNTED if box.cell.launched.settings["memory"] else "none"
        verdicts = () if quick else tuple([verdict async for verdict in battery(spec)])
    except SandboxUnavailable as error:
        return BackendRow(spec.backend, False, str(error).partition(f"{spec.backend}: ")[2])
    return BackendRow(spec.backend, True, "", uncounted, verdicts)


def _print(rows: Sequence[BackendRow]) -> None:
    lines = [
        (row.backend, "yes" if row.works else "no", _result(row), row.why_not.replace("\n", " "))
        for row in rows
    ]
    print_table(("backend", "isolates", "attacks", "why not, and what helps"), lines)
    for row in rows:
        if row.works:
            click.echo(f"Memory that no limit counts with {row.backend}: {row.uncounted}")
        for verdict in row.broken:
            click.echo(f"{row.backend}: not blocked: {verdict.attack} ({verdict.detail})")


def _result(row: BackendRow) -> str:
    if not row.verdicts:
        return "-"
    return f"{len(row.verdicts) - len(row.broken)} of {len(row.verdicts)} blocked"
