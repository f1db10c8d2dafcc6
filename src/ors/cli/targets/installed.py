"""Environments that installed packages offer by name: entry points of the group `ors.environments`."""

import re
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import NamedTuple

from ors._identity import GROUP
from ors.cli.errors import Unreachable


class Installed(NamedTuple):
    """An environment that a package offers."""

    name: str
    version: str
    package: str
    code: str
    """`package.module:Class`."""
    folder: Path
    """Where the package is installed."""


def installed() -> list[Installed]:
    """All of them, by name. Reads the metadata of every installed package."""
    return sorted(_installed(point) for point in entry_points(group=GROUP))


def _installed(point: EntryPoint) -> Installed:
    assert point.dist is not None  # it comes from a distribution
    folder = Path(str(point.dist.locate_file("")))
    return Installed(point.name, point.dist.version, point.dist.name, point.value, folder)


def find(target: str) -> Installed | None:
    """The environment that a name or `NAME==VERSION` stands for; None if no package offers that name.

    Raises:
        Unreachable: several packages offer it, or it is installed in another version.
    """
    name, exactly, version = target.partition("==")
    offered = installed()
    found = [one for one in offered if _normal(one.name) == _normal(name)]
    if len(found) > 1:
        codes = " or ".join(f"{one.code} ({one.package})" for one in found)
        raise Unreachable(f"Several packages offer {name!r}: give {codes} instead")
    if exactly and not found:
        names = ", ".join(one.name for one in offered) or "none"
        raise Unreachable(f"No installed package offers {name!r}. Installed environments: {names}")
    if exactly and found[0].version != version:
        wanted = f"pip install '{found[0].package}=={version}'"
        raise Unreachable(f"{name} {found[0].version} is installed, not {version}: {wanted}")
    return found[0] if found else None


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
