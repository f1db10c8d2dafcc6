"""The reference SDK in an environment of its own, made on demand outside the repository."""

import fcntl
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

PACKAGE = "ors-sdk"
VERSION = "0.1.0"
MARKER = ".complete"


def cache() -> Path:
    """Where things are kept that can be made again: `$ORS_TEST_CACHE`, or `~/.cache/ors-tests`."""
    return Path(os.environ.get("ORS_TEST_CACHE") or Path.home() / ".cache" / "ors-tests")


def python(package: str = PACKAGE, version: str = VERSION, *beside: str) -> list[str]:
    """The command of a Python that has the package installed; `$PYTHONPATH` must not give it ours.

    Raises:
        RuntimeError: it cannot be installed; the text says why.
    """
    home = cache() / f"{package}-{version}"
    if not (home / MARKER).exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        with home.with_name(home.name + ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (home / MARKER).exists():  # another process may have made it while we waited
                _install(home, f"{package}=={version}", *beside)
    return [str(home / "bin" / "python"), "-E"]


def _install(home: Path, *packages: str) -> None:
    print(f"installing {packages[0]} into {home}", file=sys.stderr)
    shutil.rmtree(home, ignore_errors=True)
    venv.create(home, with_pip=True)
    command = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", *packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{packages[0]} cannot be installed: {done.stderr.strip()[-500:]}")
    (home / MARKER).touch()
