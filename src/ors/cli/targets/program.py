"""A program that starts a server by itself: how `ors run` runs it, its data, and what it lacks."""

import json
import os
import re
import runpy
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from ors.cli.errors import Unreachable, keep_report_apart, one_line, shown_path
from ors.cli.targets.process import started
from ors.cli.targets.resolve import raised_at
from ors.server.process.system import LIFELINE, tied

DATA = "/orwd_data"
"""Where programs written for openreward find their data."""
BY_HAND = f"as root, `ln -s FOLDER {DATA}` does the same, without --data"


@dataclass(frozen=True)
class Program:
    """A file, or a module as in `python -m`, with its arguments."""

    name: str
    is_module: bool
    arguments: Sequence[str]

    @property
    def folder(self) -> Path:
        return Path.cwd() if self.is_module else Path(self.name).resolve().parent

    def run(self) -> None:
        """Runs it as `python` would."""
        if not self.is_module and not os.path.exists(self.name):
            raise Unreachable(f"No such file or folder: {self.name}")
        keep_report_apart()
        sys.path.insert(0, str(self.folder))
        sys.argv = [self.name, *self.arguments]
        try:
            if self.is_module:
                runpy.run_module(self.name, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(os.path.abspath(self.name), run_name="__main__")
        except click.ClickException:  # of the server that it runs
            raise
        except ModuleNotFoundError as error:
            raise Unreachable(f"{self.name} needs {self._missing(error)}") from error
        except Exception as error:
            lacks = self.lacking(str(error)) if isinstance(error, OSError) else ""
            why = f"{one_line(error)}{raised_at(error, self.folder)}{lacks}"
            raise Unreachable(f"Cannot run {self.name}: {why}") from error

    def lacking(self, problem: str) -> str:
        """What helps against a problem of a program that reads data which is not there."""
        if os.path.exists(DATA):
            return ""
        code = self.folder.rglob("*.py")
        wanted = DATA in problem or any(DATA in path.read_text(errors="replace") for path in code)
        return f"; pass --data FOLDER, which becomes {DATA}" if wanted else ""

    def _missing(self, error: ModuleNotFoundError) -> str:
        package = str(error.name or error).partition(".")[0]
        text = f"the package {package!r}, which is not installed: pip install "
        beside = self.folder / "requirements.txt"
        if not beside.is_file():
            return text + package
        text += f"-r {shown_path(beside)}"
        named = re.search(re.escape(package).replace("_", "[-_]"), beside.read_text(errors="replace"), re.I)
        return text if named else f"{text} {package} (that file does not name it)"


def has_data(folder: str) -> bool:
    return os.path.exists(DATA) and os.path.samefile(folder, DATA)


def with_data(folder: str, keys: Sequence[str]) -> int:
    """Runs this command once more, in a mount namespace in which `folder` is /orwd_data.

    Pandas and pyarrow open files in C, so nothing in Python can do it.
    """
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise Unreachable(f"--data needs bubblewrap (`apt install bubblewrap`); {BY_HAND}")
    with tied() as lifeline:
        told, tell = os.pipe()
        within = [bwrap, "--die-with-parent", "--info-fd", str(tell), *_mounts(folder), "--"]
        child = started({LIFELINE: str(lifeline)}, [lifeline, tell], keys, within=within)
        os.close(tell)
        with open(told) as pipe:
            about = pipe.read()
        if not about:
            child.wait()
            raise Unreachable(f"bubblewrap cannot mount {folder} as {DATA} here; {BY_HAND}")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # Not to bubblewrap, which would end at once, and the server with it.
            signal.signal(number, lambda number, frame: os.kill(json.loads(about)["child-pid"], number))
        return child.wait()


def _mounts(folder: str) -> Iterator[str]:
    yield from ("--tmpfs", "/")
    for path in sorted(Path("/").iterdir()):
        if path.is_symlink():
            yield from ("--symlink", os.readlink(path), str(path))
        elif path.is_dir() and str(path) != DATA:
            yield from ("--dev-bind", str(path), str(path))
    yield from ("--ro-bind", os.path.abspath(folder), DATA)
