"""Which code an environment is: the version of its package, and a hash of its files."""

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

GROUP = "ors.environments"
"""The entry points of packages that offer environments by name."""
GIT_SECONDS = 5.0
MOST_FILES = 2000
_DEPTHS = ("", "*/", "*/*/")
_SKIPPED = re.compile(r"\..*|__pycache__|venv|node_modules|site-packages|build|dist|.*\.dist-info|.*\.pyc")


@dataclass(frozen=True, slots=True)
class Identity:
    """The code of an environment, and its parameters."""

    version: str | None = None
    """That of its package, if it is installed."""
    hash: str | None = None
    """SHA-256 of its code and task files."""
    parameters: Mapping[str, Any] | None = None
    """Their values, if it has any."""

    def __str__(self) -> str:
        configured = f" with {json.dumps(self.parameters)}" if self.parameters else ""
        return f"{self.version or 'no version'} ({(self.hash or 'no hash')[:12]}){configured}"

    def differs(self, other: "Identity") -> bool:
        """Whether this is other code, or has other parameters, as far as both are known."""
        pairs = ((getattr(self, name), getattr(other, name)) for name in self.__slots__)
        return any(one != two for one, two in pairs if one is not None and two is not None)


def identity_of(cls: type, tasks: Iterable[Path] = ()) -> Identity:
    """The version and hash of a class, whose task files are `tasks`. Reads all files of its package."""
    file = _file(cls)
    if file is None:  # such as a class of a notebook
        return Identity()
    root, package = _root(file), package_of(cls)
    record = "" if package is None else package.read_text("RECORD") or ""
    if package is not None and _lists(record, package, file):
        names = {Path(line.rpartition(",")[0].rpartition(",")[0].strip('"')) for line in record.splitlines()}
    else:
        names = _names(root, root / file.relative_to(root).parts[0] if file.parent != root else root)
    declared = {Path(os.path.abspath(path)) for path in tasks}
    names |= {path.relative_to(root) if path.is_relative_to(root) else path for path in declared}
    return Identity(None if package is None else package.version, _hash(root, names))


@cache
def package_of(cls: type) -> Distribution | None:
    """The installed package that a class comes from, also one that is installed as editable."""
    if (file := _file(cls)) is None:
        return None
    found = list(distributions())
    listed = (each for each in found if _lists(each.read_text("RECORD") or "", each, file))
    return next(listed, None) or next((each for each in found if _offers(each, file)), None)


def _file(cls: type) -> Path | None:
    # An environment of a library is the code of the library.
    module = sys.modules.get(getattr(cls, "_library", cls.__module__))
    found = getattr(module, "__file__", None)
    return None if found is None else Path(os.path.abspath(found))


def _root(file: Path) -> Path:
    """The folder that the outermost package of a file is in; that of the file, if it is in none."""
    root = file.parent
    while (root / "__init__.py").is_file() and root.parent != root:
        root = root.parent
    return root


def _lists(record: str, package: Distribution, file: Path) -> bool:
    home = Path(os.path.abspath(str(package.locate_file(""))))
    return file.is_relative_to(home) and f"\n{file.relative_to(home).as_posix()}," in f"\n{record}"


def _offers(package: Distribution, file: Path) -> bool:
    """Whether a package that does not list a file has it all the same: as editable, or put there by hand."""
    origin = json.loads(package.read_text("direct_url.json") or "{}")  # PEP 610
    editable = origin.get("dir_info", {}).get("editable")
    home = unquote(urlsplit(origin["url"]).path) if editable else package.locate_file("")
    if not file.is_relative_to(os.path.abspath(str(home))):
        return False
    top = file.relative_to(_root(file)).parts[0].removesuffix(".py")
    named = re.search(r"^Name: *(\S+)", package.read_text("METADATA") or "", re.MULTILINE)
    names = [point.module.partition(".")[0] for point in package.entry_points if point.group == GROUP]
    return top in names or (named is not None and top == re.sub(r"[-_.]+", "_", named[1]).lower())


def _names(root: Path, folder: Path) -> set[Path]:
    """The Python files in a folder, two levels deep, and those that git tracks there."""
    found = {path for depth in _DEPTHS for path in folder.glob(f"{depth}*.py")}
    found |= {folder / name for name in (git(folder, "ls-files", "-z") or "").split("\0") if name}
    return {path.relative_to(root) for path in found}


def _hash(root: Path, names: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    kept = [name for name in names if name.is_absolute() or not any(map(_SKIPPED.fullmatch, name.parts))]
    for name in sorted(kept)[:MOST_FILES]:
        if not (root / name).with_name("run.json").exists():  # what was recorded is no code
            with suppress(OSError), (root / name).open("rb") as file:  # it is listed, and was deleted
                content = hashlib.file_digest(file, "sha256").hexdigest()
                digest.update(f"{name.name if name.is_absolute() else name.as_posix()}\0{content}\0".encode())
    return digest.hexdigest()


def git(folder: Path, *words: str) -> str | None:
    """What git prints in a folder; None if it fails, or is not there."""
    import subprocess  # late: authors' code imports this module

    command = ["git", "-C", str(folder), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
