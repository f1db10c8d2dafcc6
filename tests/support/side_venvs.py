"""Side environments: the packages of the field, each installed apart from ours, made on demand and kept."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "compat" / "scripts"


@dataclass(frozen=True)
class Package:
    """A package of the field, and the module in which its authors find `Environment`."""

    name: str
    version: str
    module: str

    def python(self) -> str:
        """The interpreter that has it installed."""
        home = cache() / f"{self.name}-{self.version}"
        with locked(home.parent / f"{home.name}.lock"):
            ready = home / ".complete"
            if not ready.exists():
                shutil.rmtree(home, ignore_errors=True)
                self._install(home)
                ready.touch()
        return str(home / "bin" / "python")

    def _install(self, home: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        made = subprocess.run([*pip, f"{self.name}=={self.version}"], capture_output=True, text=True)
        if made.returncode:
            pytest.skip(f"{self.name} {self.version} cannot be installed: {made.stderr[-500:]}")


ORS_SDK = Package("ors-sdk", "0.1.0", "ors")
OPENREWARD = Package("openreward", "0.1.167", "openreward.environments")


def cache() -> Path:
    """Where they are kept, from one run of the tests to the next."""
    given = os.environ.get("ORS_TEST_CACHE")
    home = Path(given) if given else Path.home() / ".cache" / "ors-tests"
    home.mkdir(parents=True, exist_ok=True)
    return home


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def environ(**more: str) -> dict[str, str]:
    """The environment variables of a side process: nothing of ours is on its path."""
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "ORS_API_KEY")}
    return kept | {"PYTHONUNBUFFERED": "1", "NO_PROXY": "*"} | more
