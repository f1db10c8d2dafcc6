"""The manifest of requirements, and what a check can raise about one."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal, get_args

Level = Literal["must", "should", "own"]


@dataclass(frozen=True)
class Requirement:
    """One requirement and its source."""

    id: str
    level: Level
    text: str
    page: str
    section: str
    chapter: str
    """Heading in reports."""

    @property
    def source(self) -> str:
        """Page and section that state the requirement."""
        return f"{self.page}, {self.section}"


@cache
def manifest() -> dict[str, Requirement]:
    """All requirements by id, also those that only tests of this package can prove (level "own")."""
    table = tomllib.loads((files("ors.conformance") / "requirements.toml").read_text(encoding="utf-8"))
    found: dict[str, Requirement] = {}
    for chapter, entries in table.items():
        for entry in entries:
            requirement = Requirement(chapter=chapter, **entry)
            if requirement.id in found or requirement.level not in get_args(Level):
                raise ValueError(f"requirement {requirement.id!r} is a duplicate, or has no valid level")
            found[requirement.id] = requirement
    return found


def requirements() -> dict[str, Requirement]:
    """The requirements that `ors check` checks, by id, in the order of their chapters."""
    return {id: each for id, each in manifest().items() if each.level != "own"}


SHOWN_BYTES = 400


class Violation(Exception):
    """The server violates a requirement. `seen` are the bytes that show it."""

    def __init__(self, text: str, seen: bytes = b"") -> None:
        super().__init__(text)
        self.text = text
        self.seen = seen


class NotTried(Exception):
    """The check is not possible on this server; the text says why."""


class ServerUnreachable(Exception):
    """No server answers."""


def shown(seen: bytes) -> str:
    """Formats bytes for a report: readable, on one line, shortened."""
    text = repr(seen[:SHOWN_BYTES])[2:-1]
    return text + (f"… ({len(seen)} bytes)" if len(seen) > SHOWN_BYTES else "")
