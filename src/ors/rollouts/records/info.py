"""Description of a run in `run.json`: configuration without secrets, versions and the state of its code."""

import hashlib
import os
import platform
import re
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

import orjson

from ors._json import dumps, loads
from ors._version import __version__
from ors.providers.messages import Seconds
from ors.rollouts.records.files import RunError, open_file
from ors.rollouts.records.line import SCHEMA, check_schema, validated
from ors.types import RewardSpec

FILE = "run.json"
GIT_SECONDS = 5.0
MOST_FILES = 2000
_DEPTHS = ("", "*/", "*/*/")
_SKIPPED = re.compile(r"\..*|__pycache__|venv|node_modules|site-packages|build|dist")
HIDDEN = "(hidden)"
_NAMES = re.compile(
    r"(^|[-_. ])(api[-_]?keys?|keys?|secrets?|passw(or)?d|passphrase|token|auth|authorization|bearer|"
    r"credentials?|cookie)$",
    re.IGNORECASE,
)
"""Names of settings that hold secrets. "tokens" is a limit."""
_VALUES = re.compile(
    r"""
    \b(?:sk|pk|rk|gsk|xai|hf|glpat|gh[opsu]|github_pat|xox[abprs]|pplx|r8|nvapi|tgp|fw|csk)[-_][\w-]{8,}
    | \b(?:AKIA|ASIA|AIza|ya29\.)[\w-]{12,}                 # AWS, Google
    | \beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?                   # JSON web tokens
    | (?<=Bearer\s)\S+ | (?<=Basic\s)\S+
    | (?<=://)[^/\s@]+(?=@)                                 # the login of a URL
    | -----BEGIN[^-]*PRIVATE\ KEY-----[\s\S]*
    | \b(?=[A-Za-z0-9]*\d)(?=[A-Za-z0-9]*[A-Za-z])[A-Za-z0-9]{28,}\b
    """,
    re.VERBOSE,
)
_ASSIGNED = re.compile(
    r"([\w-]*(?:key|secret|token(?!s)|passwd|password|credential)[\w-]*\s*[=:]\s*)(\S+)", re.IGNORECASE
)
"""A secret in the middle of a text, such as `--api-key=…` and `OPENAI_API_KEY=…`."""


@dataclass(frozen=True, slots=True)
class GitState:
    """The commit of a work tree, and whether files differ from it."""

    commit: str
    branch: str | None
    """None if no branch is checked out."""
    changed: bool


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
        """Describes a run that begins now. Values of `config` that look like secrets are hidden.

        `target` is the file or folder of the environment, whose git state is kept.
        """
        git = None if target is None else git_state(target)
        content = None if target is None else content_hash(target if target.is_dir() else target.parent)
        return cls(kind, redacted(config), _versions(), git, time.time(), content=content)

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


# ── Versions and code ──


def _versions() -> dict[str, str]:
    return {"ors": __version__, "python": platform.python_version()}


def git_state(path: Path) -> GitState | None:
    """The git state of the work tree around a path; None if there is none, or no git."""
    folder = path if path.is_dir() else path.parent
    commit = _git(folder, "rev-parse", "HEAD")
    changes = _git(folder, "status", "--porcelain", "--", ".")
    if commit is None or changes is None:
        return None
    return GitState(commit, _git(folder, "symbolic-ref", "--short", "-q", "HEAD") or None, bool(changes))


def content_hash(folder: Path) -> str:
    """SHA-256 of the Python files in a folder, two levels deep, and of the files that git tracks there."""
    found = {path.relative_to(folder) for depth in _DEPTHS for path in folder.glob(f"{depth}*.py")}
    found |= {Path(name) for name in (_git(folder, "ls-files", "-z") or "").split("\0") if name}
    digest = hashlib.sha256()
    for name in sorted(name for name in found if not any(map(_SKIPPED.fullmatch, name.parts)))[:MOST_FILES]:
        if not (folder / name).with_name("run.json").exists():
            with suppress(OSError):  # it is tracked, and was deleted
                digest.update(
                    f"{name}\0{hashlib.sha256((folder / name).read_bytes()).hexdigest()}\0".encode()
                )
    return digest.hexdigest()


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words],
            capture_output=True,
            text=True,
            timeout=GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


# ── Secrets ──


def redacted(value: Any, name: str = "") -> Any:
    """A copy of a JSON value in which everything that looks like a secret is hidden."""
    if value not in (None, "", False, True) and _NAMES.search(name):
        return HIDDEN
    if isinstance(value, Mapping):
        return {key: redacted(each, str(key)) for key, each in value.items()}
    if isinstance(value, str):
        return redacted_text(value)
    if isinstance(value, list | tuple):
        return _redacted_words(value)
    return value


def redacted_text(text: str) -> str:
    """The text with everything that looks like a secret hidden."""
    return _VALUES.sub(HIDDEN, _ASSIGNED.sub(rf"\g<1>{HIDDEN}", text))


def _redacted_words(words: list[Any] | tuple[Any, ...]) -> list[Any]:
    """Hides `--api-key X` in a command line as well: the name is the word before the value."""
    names = ["", *(word if isinstance(word, str) and word.startswith("-") else "" for word in words)]
    return [redacted(word, name.lstrip("-")) for word, name in zip(words, names, strict=False)]
