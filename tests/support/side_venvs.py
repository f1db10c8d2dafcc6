"""Side environments: the packages of the field, each installed apart from ours, made on demand and kept."""

import fcntl
import os
import shutil
import subprocess
import sys
import tomllib
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
    """What is installed besides, afterwards."""
    gigabytes: float = 0.0
    """Space that it takes, if that is a lot."""

    def python(self) -> str:
        """The interpreter that has it installed."""
        home = cache() / f"{self.name}-{self.version}"
        with locked(home.parent / f"{home.name}.lock"):
            ready, words = home / ".complete", " ".join((*self.options, *self.beside))
            if not ready.exists() or ready.read_text() != words:
                shutil.rmtree(home, ignore_errors=True)
                self._install(home)
                ready.write_text(words)
        return str(home / "bin" / "python")

    def _install(self, home: Path) -> None:
        if (free := shutil.disk_usage(home.parent).free / 1e9) < self.gigabytes:
            pytest.skip(f"{self.name} needs {self.gigabytes:g} GB in {home.parent}; {free:.1f} GB are free")
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        for words in ([*self.options, f"{self.name}=={self.version}"], self.beside):
            made = subprocess.run([*pip, *words], capture_output=True, text=True) if words else None
            if made is not None and made.returncode:
                pytest.skip(f"{self.name} {self.version} cannot be installed: {made.stderr[-500:]}")


def _ours() -> tuple[str, ...]:
    """What our package and its tests need, where they run beside a trainer."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    tests = [each for each in project["optional-dependencies"]["dev"] if each.startswith("pytest")]
    return (*project["dependencies"], *tests)


ORS_SDK = Package("ors-sdk", "0.1.0", "ors")
OPENREWARD = Package("openreward", "0.1.167", "openreward.environments")
# Its trajectories need pydantic only; the rest asks for Python 3.12 and a hundred packages.
HARBOR = Package(
    "harbor", "0.25.0", "harbor", ("--no-deps", "--ignore-requires-python"), ("pydantic==2.14.3",)
)
SCHEMATHESIS = Package("schemathesis", "4.32.5", "schemathesis")
DATASETS = Package("datasets", "5.2.0", "datasets")
# torch comes first: under exactly this version, pip finds its build for the CPU.
TRAINERS = Package(
    "torch",
    "2.13.0",
    "torch",
    beside=(
        "trl==1.16.0",
        "verl==0.9.1",
        "TransferQueue==0.1.11",
        "tinker-cookbook==0.5.8",
        "skyrl-gym==0.4.0",
        "openenv==0.10.0",
        "jmespath",
        "cachetools",
        "fastapi",
        *_ours(),
    ),
    gigabytes=6.0,
)
# The rest of what it asks for is for GPUs; its generator takes what it needs from the trainers above.
SKYRL = Package("skyrl", "0.3.0", "skyrl", ("--no-deps",), ("loguru", "jaxtyping"))
GYMNASIUM = Package("gymnasium", "1.4.0", "gymnasium", beside=_ours())
LIBRARIES = Package(
    "reasoning-gym",
    "0.1.25",
    "reasoning_gym",
    beside=("gymnasium==1.4.0", "pygame==2.6.1", "textarena==0.7.4", *_ours()),
)
FASTMCP = Package("fastmcp", "4.1.2", "fastmcp", beside=("mcp==2.3.0",))
VERIFIERS = Package("verifiers", "0.4.0", "verifiers", beside=_ours(), gigabytes=2.0)


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


def printed_by(package: Package, code: str, folder: Path, **more: str) -> str:
    """What Python code prints, run with a package in a folder; it must succeed."""
    command = [package.python(), "-c", code]
    done = subprocess.run(command, cwd=folder, env=environ(**more), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
