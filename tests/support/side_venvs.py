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
    options: tuple[str, ...] = ()
    """Words for pip."""
    beside: tuple[str, ...] = ()
    """What is installed besides, if pip does not install what the package needs."""

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
        for words in ([*self.options, f"{self.name}=={self.version}"], self.beside):
            made = subprocess.run([*pip, *words], capture_output=True, text=True) if words else None
            if made is not None and made.returncode:
                pytest.skip(f"{self.name} {self.version} cannot be installed: {made.stderr[-500:]}")


ORS_SDK = Package("ors-sdk", "0.1.0", "ors")
OPENREWARD = Package("openreward", "0.1.167", "openreward.environments")
# Its trajectories need pydantic only; the rest asks for Python 3.12 and a hundred packages.
HARBOR = Package(
    "harbor", "0.25.0", "harbor", ("--no-deps", "--ignore-requires-python"), ("pydantic==2.14.3",)
)
DATASETS = Package("datasets", "5.2.0", "datasets")


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
