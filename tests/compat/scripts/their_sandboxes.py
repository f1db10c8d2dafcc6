"""The sandboxes of openreward's SDK, as its users call them: `python their_sandboxes.py WHAT`."""

# mypy: ignore-errors

import asyncio
import hashlib
import os
import sys
import tempfile

from openreward import AsyncOpenReward, OpenReward, SandboxNetworkPolicy, SandboxSettings
from openreward.api._session.http import SessionResponseError
from openreward.api.errors import SessionTerminatedError
from openreward.api.sandboxes.types import FileTooLargeError, FileTransferError

SETTINGS = SandboxSettings(environment="a/b", image="any", machine_size="0.5:0.5", block_network=True)
MEGABYTES = int(os.environ.get("MEGABYTES", "64"))


async def fails(kind, text, coming):
    (error,) = await asyncio.gather(coming, return_exceptions=True)
    assert (isinstance(error, kind), text in str(error)) == (True, True), repr(error)


async def commands(box):
    assert tuple(await box.run("echo out; echo err >&2; exit 3")) == ("out\nerr", 3)
    cut = await box.run("seq 100000; echo whole > /workspace/mark", max_bytes=10)
    assert (cut.output, cut.truncated, cut.return_code) == ("1\n2\n3\n4\n5\n", True, 0)
    assert await box.check_run("cat /workspace/mark") == "whole"
    late = await box.run("echo begun; sleep 60", timeout=2)
    assert (late.output, late.return_code, late.timed_out) == ("begun", 124, True)
    assert (await box.run("exit 124", timeout=30)).timed_out is False
    assert (await box.run(r"printf 'a\033[31mb\a\xff'")).output == "ab\\udcff"
    await fails(RuntimeError, "Command failed: false", box.check_run("false"))
    await fails(RuntimeError, "over the limit", box.run("head -c 20000000 /dev/zero", max_bytes=None))
    both = await asyncio.gather(
        box.run("mkfifo go; cat go"), box.run("until [ -p go ]; do :; done; echo hi > go")
    )
    assert both[0].output == "hi"


async def files(box, other, folder):
    path = os.path.join(folder, "data")
    with open(path, "wb") as file:
        file.write(os.urandom(9_000_000))
    await box.upload(path, "/workspace/a b;c")
    with open(path, "rb") as file:
        assert await box.download("/workspace/a b;c") == file.read()
    with open(path, "wb") as file:
        for _ in range(MEGABYTES):
            file.write(os.urandom(2**20))
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    moved = await box.upload_from(path, "/data/new/large")
    assert (moved.size, moved.sha256) == (MEGABYTES * 2**20, digest)
    assert await box.stat_file("/data/new/large", sha256=True) == {"size": moved.size, "sha256": digest}
    assert await box.copy_to(other, "/data/new/large", "/data/copy") == moved
    assert await other.download_to("/data/copy", path + ".back") == moved
    assert len(await other.download("/data/copy")) == moved.size
    await box.run("echo -n 12345 > file; ln -s file link; mkfifo pipe; : > empty")
    assert await box.download("link") == await box.download("/workspace/link") == b"12345"
    assert await box.download("/workspace/empty") == b""
    assert (await box.download("/proc/version")).startswith(b"Linux")
    await fails(FileTooLargeError, "over the 4-byte", box.download("/workspace/file", max_size=4))
    for wrong in ("/workspace", "/workspace/none", "/workspace/pipe", "/dev/null", "none", "pipe"):
        await fails(FileTransferError, wrong, box.download(wrong))
    await fails(SessionResponseError, "symlink", box.stat_file("/workspace/link"))
    await fails(SessionResponseError, "symlink", box.download_to("/workspace/link", path))
    with open(path, "wb") as file:
        file.truncate(0)
    assert (await box.upload_from(path, "/workspace/nothing")).size == 0


async def everything():
    client = AsyncOpenReward()
    with tempfile.TemporaryDirectory() as folder:
        async with client.sandbox(SETTINGS) as box, client.sandbox(SETTINGS) as other:
            await commands(box)
            await files(box, other, folder)
            await fails(SessionResponseError, "network", box.set_network(SandboxNetworkPolicy()))
    closed = SETTINGS.model_copy(update={"network": SandboxNetworkPolicy(), "block_network": False})
    async with client.sandbox(closed) as box:
        await box.set_network(SandboxNetworkPolicy())
        await fails(SessionResponseError, "presets", box.set_network(SandboxNetworkPolicy(presets=["pypi"])))
    gpu = client.sandbox(SETTINGS.model_copy(update={"machine_size": "nvidia-l4"}))
    await fails(SessionResponseError, "GPU", gpu.start())
    async with client.sandbox(SETTINGS) as box:
        await box.run("true")
        sid, box.sid = box.sid, other.sid  # which has been deleted
        await fails(SessionTerminatedError, "410", box.run("true"))
        box.sid = sid


def sync():
    with OpenReward().sandbox(SETTINGS) as box:
        assert tuple(box.run("echo hi")) == ("hi", 0)
        assert box.download("/proc/version").startswith(b"Linux")


async def cut():
    """Behind a proxy that cuts each stream once, right after its task id."""
    async with AsyncOpenReward().sandbox(SETTINGS) as box:
        result = await box.run("echo ran >> log; sleep 1; cat log")
        assert tuple(result) == ("ran", 0), result


async def forever():
    async with AsyncOpenReward().sandbox(SETTINGS) as box:
        await box.run("true")
        print(box.sid, flush=True)
        await box.run("sleep 600", timeout=None)


{
    "everything": lambda: asyncio.run(everything()),
    "cut": lambda: asyncio.run(cut()),
    "sync": sync,
    "forever": lambda: asyncio.run(forever()),
}[sys.argv[1]]()
print("done")
