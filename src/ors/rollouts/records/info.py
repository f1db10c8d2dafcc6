"""Description of a run in `run.json`: configuration, versions and the state of its code."""

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

import orjson

from ors._json import dumps, loads
from ors.rollouts.episodes.messages import Seconds
from ors.rollouts.records.errors import RunError
from ors.rollouts.records.files import open_file
from ors.rollouts.records.line import SCHEMA, check_schema, validated
from ors.rollouts.records.provenance import GitState, content_hash, git_state, versions
from ors.rollouts.records.redaction import redacted

FILE = "run.json"


@dataclass(frozen=True, slots=True)
class RunInfo:
    """Description of a run. Has no secrets if it was made by `gathered`."""

    kind: Literal["rollouts", "sessions"] = "rollouts"
    """Who decided what is played: the driver, or the clients of a server that records its sessions."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """All settings, as they were resolved."""
    versions: Mapping[str, str] = field(default_factory=dict)
    git: GitState | None = None
    created: Seconds = 0.0
    """Seconds since 1970."""
    schema: int = SCHEMA
    content: str | None = None
    """Hash of the environment's files, if they are here."""
    earlier: tuple[Mapping[str, Any], ...] = ()
    """Target, git state and hash before the run was resumed with others."""

    @classmethod
    def gathered(
        cls,
        config: Mapping[str, Any],
        *,
        kind: Literal["rollouts", "sessions"] = "rollouts",
        target: Path | None = None,
        packages: tuple[str, ...] = (),
    ) -> Self:
        """Describes a run that begins now. Values of `config` that look like secrets are hidden.

        `target` is the file or folder of the environment, whose git state is kept. `packages` are the
        distributions whose versions are kept besides those of ors and Python.
        """
        git = None if target is None else git_state(target)
        content = None if target is None else content_hash(target if target.is_dir() else target.parent)
        return cls(kind, redacted(config), versions(packages), git, time.time(), content=content)

    def resumed(self, now: "RunInfo") -> "RunInfo":
        """The description of this run from now on, which goes on as `now` describes it."""
        earlier = self.earlier
        if (self.config.get("target"), self.content) != (now.config.get("target"), now.content):
            before = {"target": self.config.get("target"), "git": self.git, "content": self.content}
            earlier = (*earlier, before)
        return replace(self, config=now.config, git=now.git, content=now.content, earlier=earlier)

    def is_other_code(self, now: "RunInfo") -> bool:
        """Whether the environment's code has changed since, as far as both are known."""
        if self.content is None:
            return bool(self.git and now.git and self.git.commit != now.git.commit)
        return now.content is not None and self.content != now.content


def read_info(folder: Path) -> RunInfo:
    """Reads `run.json`. Unknown keys are ignored.

    Raises:
        RunError: the folder is not a run, or of a newer schema.
    """
    if not os.path.lexists(folder / FILE):
        raise RunError(f"{folder} is not a run: it has no {FILE}")
    with open_file(folder / FILE) as file:
        content = file.read()
    try:
        return _checked(loads(content))
    except RunError as error:
        raise RunError(f"{folder / FILE}: {error}") from None
    except ValueError:
        raise RunError(f"{folder / FILE} is not valid JSON, or nested too deeply") from None


def _checked(found: Any) -> RunInfo:
    check_schema(found.get("schema") if isinstance(found, dict) else None)
    return validated(found, RunInfo)


def info_bytes(info: RunInfo) -> bytes:
    """The content of `run.json`.

    Raises:
        TypeError, ValueError: it could not be read again.
    """
    found = loads(dumps(asdict(info)))
    _checked(found)
    return orjson.dumps(found, option=orjson.OPT_INDENT_2) + b"\n"
