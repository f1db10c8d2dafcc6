"""A copy of the package that a test changes, and Python that runs with it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import ors


def copied(folder: Path) -> Path:
    """Copies the package; returns the folder of the copy."""
    source = Path(ors.__file__).parent
    shutil.copytree(source, folder / "ors", ignore=shutil.ignore_patterns("page", "__pycache__"))
    return folder / "ors"


def changed(path: Path, old: str, new: str) -> None:
    """Replaces a text in a file of the copy."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def python(folder: Path, code: str) -> str:
    """What a program prints that imports the copy."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
