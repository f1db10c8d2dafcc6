"""Description of a run in `run.json`: configuration without secrets, versions and the state of its code."""

import os
import platform
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

import orjson

from ors._identity import Identity, git
from ors._json import dumps, loads
from ors._version import __version__
from ors.providers.messages import Seconds
from ors.rollouts.records.files import RunError, open_file
from ors.rollouts.records.line import SCHEMA, check_schema, validated
from ors.types import RewardSpec

FILE = "run.json"
HIDDEN = "(hidden)"
_NAMES = re.compile(
    r"(^|[-_. ])(api[-_]?keys?|keys?|secrets?|passw(or)?d|passphrase|token|auth|authorization|bearer|"
    r"credentials?|cookie)$",
    re.IGNORECASE,
)
"""Names of settings that hold secrets. "tokens" is a limit."""
_LOGIN = re.compile(r"(?<=://)[^/\s@]+(?=@)")
"""The login in a URL."""


@dataclass(frozen=True, slots=True)
class GitState:
    """The commit of a work tree, and whether files differ from it."""

    commit: str
    branch: str | None
    """None if no branch is checked out."""
    changed: bool


@dataclass(frozen=True, slots=True)
class RunInfo:
    """Description of a run."""

    kind: Literal["rollouts", "sessions"] = "rollouts"
    """Who decided what is played: the driver, or the clients of a server that records its sessions."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """All settings, as they were resolved."""
    versions: Mapping[str, str] = field(default_factory=dict)
    git: GitState | None = None
    created: Seconds = 0.0
    """Seconds since 1970."""
    schema: int = SCHEMA
    environments: Mapping[str, Identity] = field(default_factory=dict)
    """The code and the parameters of its environments, as their server says."""
    earlier: tuple[Mapping[str, Any], ...] = ()
    """Target, git state and code before the run was resumed with others."""
    rewards: Mapping[str, RewardSpec] = field(default_factory=dict)
    """What its environments declare of their rewards."""

    @classmethod
    def gathered(
        cls,
        config: Mapping[str, Any],
        *,
        kind: Literal["rollouts", "sessions"] = "rollouts",
        target: Path | None = None,
    ) -> Self:
        """Describes a run that begins now. Values of `config` that are named like secrets are hidden.

        `target` is the file or folder of the environment, whose git state is kept.
        """
        state = None if target is None else git_state(target)
        versions = {"ors": __version__, "python": platform.python_version()}
        return cls(kind, redacted(config), versions, state, time.time())

    def resumed(self, now: "RunInfo") -> "RunInfo":
        """The description of this run from now on, which goes on as `now` describes it."""
        earlier, target = self.earlier, self.config.get("target")
        if (target, self.environments) != (now.config.get("target"), now.environments):
            before = {"target": target, "git": self.git, "environments": self.environments}
            earlier = (*earlier, before)
        return replace(self, config=now.config, git=now.git, environments=now.environments, earlier=earlier)

    def changed(self, now: "RunInfo") -> str:
        """What has changed of the environment since, as far as both are known: "code has", or what else."""
        names = self.environments.keys() & now.environments.keys()
        pairs = [(self.environments[name], now.environments[name]) for name in names]
        if not pairs:
            return "code has" if self.git and now.git and self.git.commit != now.git.commit else ""
        if any(replace(one, parameters=None).differs(two) for one, two in pairs):
            return "code has"
        return "parameters have" if any(one.differs(two) for one, two in pairs) else ""


def read_info(folder: Path) -> RunInfo:
    """Reads `run.json`. Unknown keys are ignored."""
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
    found = loads(dumps(asdict(info)))
    _checked(found)
    return orjson.dumps(found, option=orjson.OPT_INDENT_2) + b"\n"


def git_state(path: Path) -> GitState | None:
    """The git state of the work tree around a path; None if there is none, or no git."""
    folder = path if path.is_dir() else path.parent
    commit = git(folder, "rev-parse", "HEAD")
    changes = git(folder, "status", "--porcelain", "--", ".")
    if commit is None or changes is None:
        return None
    return GitState(commit, git(folder, "symbolic-ref", "--short", "-q", "HEAD") or None, bool(changes))


# ── Secrets ──


def redacted(value: Any, name: str = "") -> Any:
    """A copy of a JSON value without what is named like a secret, and without the logins of URLs."""
    if value not in (None, "", False, True) and _NAMES.search(name):
        return HIDDEN
    if isinstance(value, Mapping):
        return {key: redacted(each, str(key)) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(each) for each in value]
    return _LOGIN.sub(HIDDEN, value) if isinstance(value, str) else value
