"""Requirements for servers, as data."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

Level = Literal["must", "should"]


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
def requirements() -> dict[str, Requirement]:
    """All requirements by id, in the order of their chapters."""
    table = tomllib.loads((files("ors.conformance") / "requirements.toml").read_text(encoding="utf-8"))
    found: dict[str, Requirement] = {}
    for chapter, entries in table.items():
        for entry in entries:
            requirement = Requirement(chapter=chapter, **entry)
            if requirement.id in found or requirement.level not in ("must", "should"):
                raise ValueError(f"requirement {requirement.id!r} is a duplicate, or has no valid level")
            found[requirement.id] = requirement
    return found
