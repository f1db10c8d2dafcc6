"""A writable root, mounts and the working folder: as root, and as a plain user."""

import json
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ors.sandbox import Sandbox, SandboxLimit, SandboxSpec, open_sandbox, overlay
from tests.sandbox.conftest import NOBODY, SOURCE, exists

ROOT = os.getuid() == 0
MB = 2**20
WRITABLE = SandboxSpec(backend="bwrap", writable=True, workdir="/workspace")
WHEEL = {
    "planted.py": "print('installed')\n",
    "planted-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: planted\nVersion: 1\n",
    "planted-1.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "planted-1.dist-info/RECORD": "",
}
PIP = "python3 -m pip install --no-index --quiet --root-user-action=ignore planted-1-py3-none-any.whl"
STEPS = {
    "user": "id -u; pwd; echo ~",
    "folders": "mkdir -p /home/ubuntu/a /data; echo x > /home/ubuntu/a/b; echo yes > /etc/new; cat /etc/new",
    "programs": "echo 'echo mine' > /usr/local/bin/true; chmod +x /usr/local/bin/true; /usr/local/bin/true",
    "replaced": "cp /usr/bin/env /usr/bin/new && mv /usr/bin/new /usr/bin/env && env echo yes",
    "deleted": "rm /usr/bin/yes; test -e /usr/bin/yes || echo gone",
}
EXPECTED = {
    "user": "0\n/workspace\n/root\n",
    "folders": "yes\n",
    "programs": "mine\n",
    "replaced": "yes\n",
    "deleted": "gone\n",
}
PROGRAM = f"""
import asyncio, json, sys
sys.path.insert(0, {str(SOURCE)!r})
from ors.sandbox import SandboxSpec, open_sandbox

async def main(steps, rootfs):
    spec = SandboxSpec(backend="bwrap", writable=True, workdir="/workspace", rootfs=rootfs)
    found = {{}}
    async with await open_sandbox(spec) as box:
        for name, step in steps.items():
            result = await box.exec(step)
            found[name] = (result.stdout + result.stderr).decode()
        (fork,) = await box.fork()
        async with fork:
            result = await fork.exec("cat /home/ubuntu/a/b; test -e /usr/bin/yes || /usr/local/bin/true")
            found["fork"] = (result.stdout + result.stderr).decode()
    return found

print(json.dumps(asyncio.run(main(*json.loads(sys.argv[1])))))
"""


def written(python: str, user: int, rootfs: Path | None) -> dict[str, str]:
    """What the steps print in a sandbox of another user."""
    done = subprocess.run(
        [python, "-c", PROGRAM, json.dumps([STEPS, None if rootfs is None else str(rootfs)])],
        user=user,
        group=user,
        extra_groups=[],
        env={"PATH": "/usr/bin:/bin"},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.fixture
def full_root(rootfs: Path) -> Iterator[Path]:
    """A root with the programs of the steps."""
    folder = Path(tempfile.mkdtemp(prefix="ors-root:with,signs-"))
    folder.chmod(0o755)
    shutil.copytree(rootfs, folder, dirs_exist_ok=True, symlinks=True)
    for name in ("cp", "mv", "rm", "chmod"):
        shutil.copy2(shutil.which(name) or "", folder / "usr/bin" / name)
    libraries = Path("/usr/lib/x86_64-linux-gnu")
    for path in (*libraries.glob("libacl.so*"), *libraries.glob("libattr.so*")):
        shutil.copy2(path, folder / "lib/x86_64-linux-gnu")
    (folder / "usr/local/bin").mkdir(parents=True)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("user", sorted({os.getuid(), NOBODY if ROOT else os.getuid()}))
@pytest.mark.parametrize("whose", ["the host's /usr", "somebody else's root", "a root of one's own"])
def test_programs_are_root_and_can_change_everything(
    user: int, whose: str, public_python: str, request: pytest.FixtureRequest
) -> None:
    root = None if whose == "the host's /usr" else request.getfixturevalue("full_root")
    if whose == "a root of one's own":
        subprocess.run(["chown", "-R", f"{user}:{user}", str(root)], check=True)
    listing = ["ls", "-lR", str(root)] if root else ["true"]
    before = subprocess.run(listing, capture_output=True, check=True).stdout
    assert written(public_python, user, root) == {**EXPECTED, "fork": "x\nmine\n"}
    assert subprocess.run(listing, capture_output=True, check=True).stdout == before
    assert not any(Path(path).exists() for path in ("/home/ubuntu/a", "/usr/local/bin/true", "/usr/bin/new"))
    assert Path("/usr/bin/yes").exists()


@pytest.mark.skipif(not ROOT, reason="only root can make files of other users")
async def test_homes_of_other_users_in_a_root_can_be_written_to(full_root: Path, tmp_path: Path) -> None:
    (full_root / "home/ubuntu/sub").mkdir(parents=True)
    (full_root / "home/ubuntu/.profile").write_text("a\n")
    (tmp_path / "file").write_text("host")
    (full_root / "home/link").symlink_to(tmp_path)
    subprocess.run(["chown", "-R", "1000:1000", full_root / "home/ubuntu"], check=True)
    async with await open_sandbox(replace(WRITABLE, rootfs=str(full_root))) as box:
        result = await box.exec(
            "cd /home/ubuntu && echo b >> .profile && echo c > sub/file && cat .profile sub/file"
        )
        assert result.stdout == b"a\nb\nc\n", result.stderr
    assert (full_root / "home/ubuntu/.profile").read_text() == "a\n"
    assert {path.stat().st_uid for path in (tmp_path, tmp_path / "file")} == {0}


@pytest.mark.long
async def test_pip_installs_into_a_writable_root(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "planted-1-py3-none-any.whl", "w") as wheel:
        for name, text in WHEEL.items():
            wheel.writestr(name, text)
    async with await open_sandbox(WRITABLE) as box:
        if (await box.exec("python3 -m pip --version")).returncode:
            pytest.skip("the host's Python has no pip")
        await box.upload(tmp_path / "planted-1-py3-none-any.whl", "planted-1-py3-none-any.whl")
        result = await box.exec(PIP, env={"PIP_BREAK_SYSTEM_PACKAGES": "1"})
        assert result.returncode == 0, result.stderr
        assert (await box.exec(["python3", "-c", "import planted"], cwd="/")).stdout == b"installed\n"
        assert b"/root" not in (await box.exec("python3 -m pip show -f planted")).stdout


async def test_a_writable_root_has_a_size_and_a_number_of_files() -> None:
    spec = SandboxSpec(backend="bwrap", writable=True, memory=96 * MB, disk=8 * MB, tmp=4 * MB, inodes=2000)
    async with await open_sandbox(spec) as box:
        filled = await box.exec("head -c 64M /dev/zero > /opt/large; ls -s --block-size=1 /opt/large")
        assert b"No space left" in filled.stderr
        assert 4 * MB < int(filled.stdout.split()[0]) <= 16 * MB
        await box.exec("rm /opt/large")
        many = "import os\nfor n in range(3000): open(f'/srv/{n}', 'w').close()"
        result = await box.exec(["python3", "-c", many])
        assert result.limit == "inodes" or b"No space left" in result.stderr
        with pytest.raises(SandboxLimit, match="no room"):
            await box.write_file("/opt/large", bytes(17 * MB))
        (place, _) = (await box.look()).places
        assert (place.path, place.size) == ("/", 16 * MB)


async def changed(box: Sandbox) -> None:
    result = await box.exec(
        "mkdir -p /opt/new /workspace/sub && echo added > /opt/new/file && ln -s new /opt/link && "
        "rm -r /usr/share/common-licenses && mkdir /usr/share/common-licenses && "
        "echo mine > /usr/share/common-licenses/mine && rm /usr/bin/env && echo work > sub/file"
    )
    assert result.returncode == 0, result.stderr


async def test_forks_and_snapshots_have_the_changes_of_a_writable_root() -> None:
    async with await open_sandbox(WRITABLE) as box:
        await changed(box)
        shown = {file.path for file in (await box.look()).files}
        assert {"/opt/new/file", "/usr/share/common-licenses/mine"} <= shown
        assert not any(path.startswith("/proc/") for path in shown)
        for copy in await box.fork(2):
            async with copy:
                seen = await copy.exec("cat /opt/link/file sub/file; ls /usr/share/common-licenses; id -u")
                assert seen.stdout == b"added\nwork\nmine\n0\n"
                assert not await exists(copy, "/usr/bin/env")
        snapshot = await box.snapshot()
    async with await open_sandbox(WRITABLE, files=snapshot) as later:
        assert await later.read_file("/opt/new/file") == b"added\n"
        assert (await later.exec("cat /etc/passwd; ls /proc/1/status")).returncode == 0
    snapshot.close()
    async with await open_sandbox(WRITABLE) as fresh:
        assert await exists(fresh, "/usr/bin/env")
        assert not await exists(fresh, "/opt/new")


def test_a_stream_from_inside_removes_nothing_on_the_host(tmp_path: Path) -> None:
    from ors.sandbox.inside.archive import record, unpack

    (tmp_path / "file").write_text("kept")
    stream = iter([record(b"W", 0, b"file")[:17], b"file"])
    with pytest.raises(ValueError, match="not well formed"):
        unpack(bytes(tmp_path), lambda _: next(stream), links=False)
    assert (tmp_path / "file").exists()


async def test_grading_copies_the_working_folder_into_a_fresh_root() -> None:
    async with await open_sandbox(WRITABLE) as box:
        await box.write_file("answer", b"42")
        await box.exec("printf '#!/bin/sh\necho cheated' > /usr/local/bin/cat; chmod +x /usr/local/bin/cat")
        assert (await box.exec(["cat", "answer"])).stdout == b"cheated\n"
        assert (await box.grade(["cat", "/workspace/answer"])).stdout == b"42"
        assert (await box.grade_cases(["cat", "answer"], [("", "42")])).all


@pytest.fixture
def shared() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="ors-mounts-"))
    (folder / "data").mkdir()
    (folder / "out").mkdir()
    (folder / "data/file").write_text("shown")
    subprocess.run(["chmod", "-R", "a+rwX", folder], check=True)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("writable", [False, True])
async def test_folders_of_the_host_are_mounted_under_other_paths(shared: Path, writable: bool) -> None:
    mounts = {"/orwd_data": f"{shared}/data", "/work/out": f"{shared}/out:rw", "/one": f"{shared}/data/file"}
    async with await open_sandbox(SandboxSpec(backend="bwrap", mounts=mounts, writable=writable)) as box:
        result = await box.exec("cat /orwd_data/file /one; touch /orwd_data/x; rm /one; echo back > out/file")
        assert result.stdout == b"shownshown"
        assert b"Read-only" in result.stderr
        (copy,) = await box.fork()
        async with copy:
            assert await copy.read_file("/work/out/file") == b"back\n"
    assert (shared / "out/file").read_text() == "back\n"
    assert [path.name for path in (shared / "data").iterdir()] == ["file"]


async def test_a_mount_that_is_not_there_is_named() -> None:
    from ors.errors import SandboxUnavailable

    with pytest.raises(SandboxUnavailable, match="/nowhere"):
        await open_sandbox(SandboxSpec(backend="bwrap", mounts={"/data": "/nowhere"}))


async def test_programs_and_paths_start_in_the_working_folder() -> None:
    async with await open_sandbox(SandboxSpec(backend="bwrap", workdir="/tmp/here")) as box:
        await box.write_file("file", b"x")
        assert (await box.exec("pwd; ls")).stdout == b"/tmp/here\nfile\n"
        assert await box.read_file("/tmp/here/file") == b"x"
    async with await open_sandbox(SandboxSpec(backend="none", workdir="/work/sub")) as box:
        await box.write_file("file", b"x")
        assert (await box.exec("pwd; ls")).stdout.decode().split() == [box.work, "file"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"mounts": {"data": "/srv"}}, "absolute"),
        ({"mounts": {"/data": "srv"}}, "absolute"),
        ({"mounts": {"/data/../usr": "/srv"}}, "cannot be a folder"),
        ({"mounts": {"/proc/x": "/srv"}}, "cannot be a folder"),
        ({"workdir": "/"}, "cannot be a folder"),
        ({"workdir": "work"}, "absolute"),
    ],
)
def test_a_wrong_path_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        SandboxSpec(**wrong)


async def test_nothing_of_a_writable_root_is_left() -> None:
    async with await open_sandbox(WRITABLE) as box:
        await box.exec("head -c 1M /dev/urandom > /opt/file")
        pid = box.cell.pid
    assert not Path(f"/proc/{pid}").exists()
    assert not any(overlay.ROOT in line for line in Path("/proc/self/mounts").read_text().splitlines())
