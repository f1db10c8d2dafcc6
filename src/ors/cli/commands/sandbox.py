"""`ors sandbox` and `ors sandboxes`: what this machine can isolate, its images, and sandboxes over HTTP."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import click

from ors import Limits
from ors.cli.errors import CommandError
from ors.cli.options import shared
from ors.cli.options.serving import Access, Address, check_exposure
from ors.cli.options.shared import COUNT, Command, CommandGroup, as_json, options
from ors.cli.output.printing import print_json, print_table
from ors.errors import SandboxUnavailable
from ors.sandbox import SandboxSpec
from ors.sandbox.battery import Verdict, battery
from ors.sandbox.box import open_box
from ors.sandbox.images import root_of
from ors.sandbox.spec import MB

UNCOUNTED = (
    "pipes, and what the kernel needs for files and processes "
    "(refused for that reason: memfd, shared mappings without a file, System V IPC, inotify)"
)
"""Where there are no control groups."""
ISOLATING: tuple[Literal["bwrap", "podman", "docker"], ...] = ("bwrap", "podman", "docker")


@dataclass(frozen=True)
class BackendRow:
    backend: str
    works: bool
    why_not: str
    uncounted: str = ""
    """Memory that no limit counts here."""
    verdicts: tuple[Verdict, ...] = ()

    @property
    def broken(self) -> list[Verdict]:
        return [verdict for verdict in self.verdicts if not verdict.blocked]


@click.group(cls=CommandGroup, examples=["ors sandbox check", "ors sandbox pull python:3.12-slim"])
def sandbox() -> None:
    """Check how this machine isolates the programs of agents, and pull images for them."""


@sandbox.command(cls=Command, examples=["ors sandbox pull python:3.12-slim"])
@click.argument("image")
def pull(image: str) -> None:
    """Pull an image from its registry, without a container engine.

    It is unpacked into the cache, where sandboxes find it by its name. If an image of this name is there, the
    registry is asked for a newer one. IMAGE may also be the path of a folder or archive.
    """

    def tell(digest: str, done: int, size: int) -> None:
        if sys.stderr.isatty() or done == size:
            line = f"{digest[7:19]}  {done / MB:,.1f} of {size / MB:,.1f} MB"
            click.echo(f"\r{line}" if sys.stderr.isatty() else line, err=True, nl=done == size)

    folder = root_of(image, tell, anew=True).folder
    click.echo(f'Unpacked in {folder}. Use it as SandboxSpec(image="{image}").')
    click.echo(f"Try: ors sandbox check --image {image}")


@sandbox.command(cls=Command, examples=["ors sandbox check", "ors sandbox check --quick --json"])
@click.option(
    "--image",
    metavar="NAME|PATH",
    help="Image to open: its name, or the path of its archive, or of a folder with its root. By default the "
    "host's /usr.",
)
@click.option("--quick", is_flag=True, help="Only open sandboxes; skip the attacks.")
@as_json
def check(image: str | None, quick: bool, as_json: bool) -> None:
    """Check how this machine isolates the programs of agents.

    Opens a sandbox on each backend, and attacks it. Prints which backends work here, what helps where one
    does not, the memory that no limit counts, and every attack that was not blocked. The exit code is 1 if
    no backend isolates, or if an attack was not blocked.
    """
    rows = [asyncio.run(_row(SandboxSpec(backend=name, image=image), quick)) for name in ISOLATING]
    if as_json:
        print_json([asdict(row) for row in rows])
    else:
        _print(rows)
    if not any(row.works for row in rows):
        raise CommandError("no backend can isolate programs on this machine")
    if any(row.broken for row in rows):
        raise CommandError("an attack on a sandbox was not blocked")


async def _row(spec: SandboxSpec, quick: bool) -> BackendRow:
    try:
        async with await open_box(spec) as box:
            uncounted = UNCOUNTED if box.cell.launched.settings["memory"] else "none"
        verdicts = () if quick else tuple([verdict async for verdict in battery(spec)])
    except SandboxUnavailable as error:
        return BackendRow(spec.backend, False, str(error).partition(f"{spec.backend}: ")[2])
    return BackendRow(spec.backend, True, "", uncounted, verdicts)


def _print(rows: Sequence[BackendRow]) -> None:
    lines = []
    for row in rows:
        blocked = f"{len(row.verdicts) - len(row.broken)} of {len(row.verdicts)} blocked"
        attacks = blocked if row.verdicts else "-"
        lines.append((row.backend, "yes" if row.works else "no", attacks, row.why_not.replace("\n", " ")))
    print_table(("backend", "isolates", "attacks", "why not, and what helps"), lines)
    for row in rows:
        if row.works:
            click.echo(f"Memory not counted by any limit with {row.backend}: {row.uncounted}")
        for verdict in row.broken:
            click.echo(f"{row.backend}: not blocked: {verdict.attack} ({verdict.detail})")


ADVICE = "Programs that use openreward find it by OPENREWARD_SESSION_URL={url}"
IDLE_SECONDS = 120.0
"""A sandbox ends this long after the last request of its client, which pings every ten seconds."""
PING_SECONDS = 5.0
"""Clients give a stream up that is silent for 30 seconds."""


@click.command(cls=Command, examples=["ors sandboxes --port 8091 --host-root"])
@options("Options", "address", Address)
@click.option(
    "--data",
    type=shared.EXISTING_FOLDER,
    help="Folder that buckets are mounted from, read-only.",
)
@click.option(
    "--sandboxes", "most", type=COUNT, default=64, help="Maximum concurrent sandboxes; beyond it, 429."
)
@options("Sandboxes", "flags", shared.HostingFlags)
@options("Access", "access", Access)
def sandboxes(
    address: Address,
    data: Path | None,
    most: int,
    flags: shared.HostingFlags,
    access: Access,
) -> None:
    """Serve sandboxes to programs that use openreward.

    Set OPENREWARD_SESSION_URL to its address, and OPENREWARD_API_KEY to one of its keys if it has any. What a
    client asks for and this server does not have is refused by name. A sandbox ends with its client: 120
    seconds after its last request or ping.
    """
    from ors.openreward.serving import sandbox_server

    access.check_certificate()
    keys = access.all_keys([])
    check_exposure(address.host, bool(keys or access.insecure), "Set a key in ORS_API_KEYS")
    server = sandbox_server(
        flags.hosting(data),
        limits=Limits(sessions=most, idle_seconds=IDLE_SECONDS, ping_seconds=PING_SECONDS),
        api_keys=keys,
        cors_origins=access.cors_origin,
        inspector=access.inspector,
    )
    runner = server.runner(
        address.host,
        address.port,
        insecure=access.insecure,
        on_start=lambda url: click.echo(f"Serving on {url} (stop with Ctrl-C)\n\n{ADVICE.format(url=url)}"),
        **access.certificate,
    )
    address.run(runner)
