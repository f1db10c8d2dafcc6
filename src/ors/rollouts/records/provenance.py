"""Versions and git state of what plays a run."""

import hashlib
import platform
import re
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from ors._version import __version__

GIT_SECONDS = 5.0
MOST_FILES = 2000
_DEPTHS = ("", "*/", "*/*/")
_SKIPPED = re.compile(r"\..*|__pycache__|venv|node_modules|site-packages|build|dist")


@dataclass(frozen=True, slots=True)
class GitState:
    """The commit of a work tree, and whether files differ from it."""

    commit: str
    branch: str | None
    """None if no branch is checked out."""
    changed: bool


def versions(packages: Iterable[str] = ()) -> dict[str, str]:
    """Versions of ors, Python and the given distributions, as far as they are installed."""
    found = {"ors": __version__, "python": platform.python_version()}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


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
