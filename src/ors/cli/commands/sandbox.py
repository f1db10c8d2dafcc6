"""`ors sandbox`: what this machine can isolate, and roots for it."""

import asyncio
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from ors.cli.errors import CommandError, WrongUsage
from ors.cli.options.shared import Command, CommandGroup, as_json
from ors.cli.output.printing import print_json, print_table
from ors.errors import SandboxUnavailable
from ors.sandbox import SandboxSpec
from ors.sandbox.battery import Verdict, battery
from ors.sandbox.box import open_box
from ors.sandbox.images import root_of
from ors.sandbox.root import make_root
from ors.sandbox.spec import MB

UNCOUNTED = (
    "pipes, and what the kernel needs for files and processes "
    "(refused for that reason: memfd, shared mappings without a file, System V IPC, inotify)"
)
"""Where there are no control groups."""
ISOLATING = ("bwrap", "podman", "docker")
FOLDER = click.Path(file_okay=False, resolve_path=True, path_type=Path)
EXISTING = click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path)


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


@click.group(cls=CommandGroup, examples=["ors sandbox check", "ors sandbox root debian --deb git"])
def sandbox() -> None:
    """Check how this machine isolates the programs of agents, and make roots for them."""


def _suite() -> str:
    try:
        known = platform.freedesktop_os_release()
    except OSError:
        return "stable"
    return known.get("VERSION_CODENAME", "stable") if known["ID"] == "debian" else "stable"


@sandbox.command(
    cls=Command, examples=["ors sandbox root debian --deb git --pip 'pytest>=8' --copy repository"]
)
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.option("--deb", multiple=True, metavar="NAME", help="Debian package; repeatable.")
@click.option("--pip", multiple=True, metavar="NAME", help="PyPI package; repeatable.")
@click.option("--copy", multiple=True, type=EXISTING, metavar="FOLDER", help="Folder for /opt; repeatable.")
@click.option(
    "--suite", metavar="NAME", default=_suite, help="Release of Debian. [default: the host's, or stable]"
)
def root(
    folder: Path, deb: tuple[str, ...], pip: tuple[str, ...], copy: tuple[Path, ...], suite: str
) -> None:
    """Make a root for sandboxes in DIR, without a container engine.

    DIR gets Python, the packages that you name, and an account for programs. It takes mmdebstrap a minute or
    more; what it and pip do is shown. Use it as SandboxSpec(rootfs="/path/of/DIR").
    """
    try:
        make_root(folder, suite, deb, pip, copy)
    except FileExistsError as error:
        raise WrongUsage(str(error)) from None
    click.echo(f'Made {folder}. Use it as SandboxSpec(rootfs="{folder}").')
    click.echo(f"Try: ors sandbox check --rootfs {folder}")


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
@click.option("--image", metavar="NAME", help="Image to open: a name, or the path of a folder or archive.")
@click.option("--rootfs", metavar="DIR", type=EXISTING, help="Root for bwrap, in place of the host's /usr.")
@click.option("--quick", is_flag=True, help="Only open sandboxes; leave the attacks out.")
@as_json
def check(image: str | None, rootfs: Path | None, quick: bool, as_json: bool) -> None:
    """Check how this machine isolates the programs of agents.

    Opens a sandbox on each backend, and attacks it. Prints which backends work here, what helps where one
    does not, the memory that no limit counts, and every attack that was not blocked. The exit code is 1 if
    no backend isolates, or if an attack was not blocked.
    """
    rows = asyncio.run(_rows(image, rootfs, quick))
    if as_json:
        print_json([{**asdict(row), "verdicts": [asdict(each) for each in row.verdicts]} for row in rows])
    else:
        _print(rows)
    if not any(row.works for row in rows):
        raise CommandError("no backend isolates on this machine")
    if any(row.broken for row in rows):
        raise CommandError("an attack on a sandbox was not blocked")


async def _rows(image: str | None, rootfs: Path | None, quick: bool) -> list[BackendRow]:
    if rootfs is not None:
        return [await _row(SandboxSpec(backend="bwrap", rootfs=str(rootfs)), quick)]
    return [await _row(SandboxSpec(backend=name, image=image), quick) for name in ISOLATING]  # type: ignore[arg-type]


async def _row(spec: SandboxSpec, quick: bool) -> BackendRow:
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
