import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from ors.sandbox import Sandbox, SandboxSpec, open_sandbox
from tests.support.rootfs import build

SOURCE = Path(__file__).parents[2] / "src"
NOBODY = 65534


def host_pids(box: Sandbox) -> list[int]:
    """The processes of a sandbox, as the host counts them."""
    group = box.cell.launched.cgroup
    assert group is not None
    return [int(pid) for pid in (group.folders[0] / "cgroup.procs").read_text().split()]


async def exists(box: Sandbox, path: str) -> bool:
    return (await box.exec(["test", "-e", path])).returncode == 0


@pytest_asyncio.fixture
async def box() -> AsyncIterator[Sandbox]:
    async with await open_sandbox(SandboxSpec(backend="bwrap")) as opened:
        yield opened


@pytest.fixture(scope="session")
def rootfs() -> Iterator[Path]:
    """A root file system that every user can read."""
    folder = Path(tempfile.mkdtemp(prefix="ors-rootfs-"))
    folder.chmod(0o755)
    build(folder)
    (folder / "etc" / "motd").write_text("welcome")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def public_python() -> str:
    """A Python that every user may start; root's own one may be in a locked folder."""
    wanted = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for candidate in (os.path.realpath(sys.executable), shutil.which(wanted, path="/usr/local/bin:/usr/bin")):
        if candidate and all(parent.stat().st_mode & 0o001 for parent in Path(candidate).parents):
            return candidate
    pytest.skip(f"no {wanted} that a plain user may start")
