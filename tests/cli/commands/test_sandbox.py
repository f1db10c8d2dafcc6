"""`ors sandbox`: what this machine can isolate, and roots for it."""

import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ors.sandbox import SandboxSpec, open_sandbox
from tests.support.commands import run

pytestmark = pytest.mark.long
needs_mmdebstrap = pytest.mark.skipif(shutil.which("mmdebstrap") is None, reason="needs mmdebstrap")


def test_check_opens_a_sandbox_on_each_backend() -> None:
    done = run("sandbox", "check", "--quick", "--json")
    assert done.code == 0
    rows = {row["backend"]: row for row in done.json}
    assert list(rows) == ["bwrap", "podman", "docker"]
    assert rows["bwrap"]["works"]
    assert rows["docker"]["why_not"].startswith("no image is named. What helps: SandboxSpec(image=")
    assert rows["bwrap"]["uncounted"]


def test_check_prints_the_memory_that_no_limit_counts() -> None:
    done = run("sandbox", "check", "--quick")
    (line,) = [line for line in done.out.splitlines() if line.startswith("Memory that no limit counts with")]
    assert line.split(": ")[1].startswith("none" if os.getuid() == 0 else "pipes")


@pytest.mark.long
def test_check_attacks_and_prints_a_table() -> None:
    done = run("sandbox", "check")
    assert done.code == 0
    (line,) = [line for line in done.out.splitlines() if line.startswith("bwrap")]
    words = line.split()
    assert words[1] == "yes"
    assert words[2] == words[4]
    assert int(words[2]) > 90


def test_without_any_backend_the_command_fails_and_says_what_helps() -> None:
    done = run("sandbox", "check", env={"PATH": "/nowhere"})
    assert done.code == 1
    assert "sudo apt-get install bubblewrap" in done.out
    assert "no backend isolates on this machine" in done.err


# ── roots ────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user can read."""
    folder = Path(tempfile.mkdtemp(prefix="ors-root-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def wheel(folder: Path) -> Path:
    """A package with a module and a command."""
    path = folder / "hello-1.0-py3-none-any.whl"
    info = "hello-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("hello.py", "def main(): print('hello there')")
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: hello\nVersion: 1.0\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/entry_points.txt", "[console_scripts]\nhello = hello:main\n")
        file.writestr(f"{info}/RECORD", "")
    return path


@needs_mmdebstrap
@pytest.mark.timeout(600)
async def test_a_root_is_made_without_an_engine_and_a_sandbox_opens_on_it(public: Path) -> None:
    (public / "repository").mkdir()
    (public / "repository" / "file").write_text("copied\n")
    words = ["--pip", str(wheel(public)), "--copy", str(public / "repository")]
    before = os.umask(0o077)
    try:
        done = run("sandbox", "root", str(public / "root"), *words, patience=500)
    finally:
        os.umask(before)
    assert done.code == 0, done.err
    assert f'SandboxSpec(rootfs="{public}/root")' in done.out
    assert "I: installing" in done.err  # what mmdebstrap does is shown
    spec = SandboxSpec(backend="bwrap", rootfs=str(public / "root"))
    async with await open_sandbox(spec) as box:
        shown = await box.exec("whoami; hello; cat /opt/repository/file; getent hosts localhost")
        assert shown.stdout.decode().split() == ["agent", "hello", "there", "copied", "::1", "localhost"]
        assert (await box.read_file("/etc/gitconfig")).decode().split() == ["[safe]", "directory", "=", "*"]
        assert await box.read_file("/etc/resolv.conf") == b""
    checked = run("sandbox", "check", "--rootfs", str(public / "root"), "--json")
    (row,) = checked.json
    assert (checked.code, row["works"]) == (0, True)
    assert len(row["verdicts"]) > 90


@needs_mmdebstrap
def test_a_root_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    done = run("sandbox", "root", str(tmp_path / "root"), "--suite", "no-such-release")
    assert done.code == 1
    assert "mmdebstrap could not make" in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_root_needs_mmdebstrap_and_a_new_folder(tmp_path: Path) -> None:
    done = run("sandbox", "root", str(tmp_path / "root"), env={"PATH": "/nowhere"})
    assert done.code == 1
    assert "mmdebstrap is not installed. What helps: sudo apt-get install mmdebstrap" in done.err
    (tmp_path / "file").touch()
    done = run("sandbox", "root", str(tmp_path))
    assert done.code == 2
    assert "is not empty" in done.err
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
