"""Coding agents for tests: the real ones, installed from npm on demand, and a pretender."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.side_venvs import cache, locked

VERSIONS = {
    "@anthropic-ai/claude-code": "2.1.197",
    "@openai/codex": "0.166.0",
    "@google/gemini-cli": "0.61.0",
    "opencode-ai": "1.18.33",
}
GIGABYTES = 3


def installed() -> Path:
    """The folder with the commands of all four agents; skips, with the reason, if they cannot be there."""
    home, wanted = cache() / "coding-agents", [f"{name}@{version}" for name, version in VERSIONS.items()]
    if shutil.which("npm") is None:
        pytest.skip("coding agents cannot be installed: there is no npm")
    with locked(cache() / "coding-agents.lock"):
        ready = home / ".complete"
        if not ready.exists() or ready.read_text() != " ".join(wanted):
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir()
            if (free := shutil.disk_usage(home).free / 1e9) < GIGABYTES:
                pytest.skip(f"coding agents need {GIGABYTES} GB in {home}; {free:.1f} GB are free")
            npm = ["npm", "install", "--prefix", str(home), "--no-audit", "--no-fund"]
            made = subprocess.run([*npm, *wanted], capture_output=True, text=True)
            if made.returncode:
                pytest.skip(f"coding agents cannot be installed: {made.stderr[-500:]}")
            ready.write_text(" ".join(wanted))
    return home / "node_modules" / ".bin"


@contextmanager
def installed_for_sandboxes(commands: Path) -> Iterator[Path]:
    """A folder of the agents that the user of a sandbox can read, also if this one's home is closed."""
    if os.getuid():
        yield commands.parents[1]
        return
    with for_sandboxes() as folder:
        copied = ["cp", "-a", f"{commands.parent}", f"{folder}"]
        if subprocess.run([*copied, "--link"], capture_output=True).returncode:
            subprocess.run([*copied, "--force"], check=True)  # another file system
        yield folder


def on_path(folder: Path) -> str:
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def pretender(folder: Path, python: str = sys.executable) -> Path:
    """A folder with a command `claude` that behaves as the name of its model says."""
    return command(folder, f"#!{python}\n{PRETENDER.read_text()}")


@contextmanager
def for_sandboxes() -> Iterator[Path]:
    """An empty folder that the user of a sandbox can read."""
    with TemporaryDirectory(prefix="ors-agents-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def command(folder: Path, text: str) -> Path:
    """A folder with a command `claude`."""
    folder.mkdir(exist_ok=True)
    file = folder / "claude"
    file.write_text(text)
    file.chmod(0o755)
    return folder


PRETENDER = Path(__file__).with_name("pretended_agent.py")
