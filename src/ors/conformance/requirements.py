"""What a server has to do, as data."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

Level = Literal["must", "should"]


@dataclass(frozen=True)
class Requirement:
    """One sentence that a server has to satisfy, and where it comes from."""

    id: str
    level: Level
    text: str
    page: str
    section: str
    chapter: str
    """Under which heading it is reported."""

    @property
    def source(self) -> str:
        """Page and section of the specification."""
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
                raise ValueError(f"requirement {requirement.id!r} is there twice, or of no level")
            found[requirement.id] = requirement
    return found
