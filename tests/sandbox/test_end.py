"""What is left when a sandbox, or the process that opened it, ends in any way."""

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from ors.sandbox import Sandbox, SandboxDead, SandboxSpec, SandboxUnavailable, open_sandbox
from ors.sandbox.box import open_box
from tests.support.waiting import until, wait_until

SPEC = SandboxSpec(backend="bwrap")

SERVER = """
import asyncio, sys
from ors.sandbox import SandboxSpec, open_sandbox

async def main():
    boxes = [await open_sandbox(SandboxSpec(backend=sys.argv[2])) for _ in range(3)]
    for box in boxes:
        await box.exec(["sh", "-c", "setsid sh -c 'while :; do :; done' $0 & sleep 600 &", sys.argv[1]])
    print("ready", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def processes(mark: str) -> list[int]:
    """Processes with a word in their command line, as the host sees them."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        found += [int(entry.name)] if mark.encode() in words else []
    return found


def groups(pid: int) -> list[str]:
    """Control groups of the sandboxes of a process."""
    folders = (folder for _, inner, _ in os.walk("/sys/fs/cgroup") for folder in inner)
    return [folder for folder in folders if folder.startswith(f"ors-{pid}-")]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_the_process_that_opened_it(how: signal.Signals) -> None:
    mark = f"mark-{secrets.token_hex(6)}"
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, mark, "bwrap"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    with server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        assert len(processes(mark)) >= 3
        server.send_signal(how)
        wait_until(lambda: not processes(mark), "the programs have ended")
        wait_until(lambda: not groups(server.pid), "the control groups are gone")


def test_nothing_outlives_a_process_whose_copy_goes_on() -> None:
    mark = f"mark-{secrets.token_hex(6)}"
    # A copy of the server keeps every file descriptor open; only the death of the server itself can tell.
    copy = "    import os, time\n    if os.fork() == 0: time.sleep(60)\n"
    forking = SERVER.replace('    print("ready"', copy + '    print("ready"')
    server = subprocess.Popen(
        [sys.executable, "-c", forking, mark, "bwrap"], stdout=subprocess.PIPE, start_new_session=True
    )
    with server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        of_server = [pid for pid in processes(mark) if os.getpgid(pid) == server.pid]
        (copy_of_server,) = set(of_server) - {server.pid}  # numbers begin again after the highest
        os.kill(server.pid, signal.SIGKILL)
        server.wait()
        wait_until(lambda: processes(mark) == [copy_of_server], "only the copy of the server is left")
        wait_until(lambda: not groups(server.pid), "the control groups are gone")
        os.kill(copy_of_server, signal.SIGKILL)


async def test_a_sandbox_that_is_killed_from_outside_says_so() -> None:
    async with await open_box(SPEC) as box:
        os.kill(box.cell.pid, signal.SIGKILL)
        with pytest.raises(SandboxDead):
            await box.exec(["sleep", "600"])
        folders = box.cell.launched.cgroup.folders if box.cell.launched.cgroup else ()
        await box.cell.gone
        assert not any(folder.exists() for folder in folders)


async def test_an_agent_that_does_not_answer_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ors.sandbox.box.UNANSWERED", 0.2)
    async with await open_box(SPEC) as box:
        for pid in family(box.cell.pid):
            os.kill(pid, signal.SIGSTOP)
        with pytest.raises(SandboxDead, match="did not answer"):
            await box.exec(["true"], timeout=0.1)
        folders = box.cell.launched.cgroup.folders if box.cell.launched.cgroup else ()
    assert not any(folder.exists() for folder in folders)


def family(pid: int) -> list[int]:
    """A process and everything below it."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in family(int(child)))]


async def test_a_sandbox_whose_opening_is_cancelled_is_gone() -> None:
    before, there = len(os.listdir("/proc/self/fd")), groups(os.getpid())
    for turns in range(1, 12):
        opening = asyncio.ensure_future(open_sandbox(SPEC))
        for _ in range(turns):
            await asyncio.sleep(0)
        if not opening.cancel():  # on a slow machine all is done after a few turns
            await (await opening).close()
            continue
        with pytest.raises(asyncio.CancelledError):
            await opening
    await until(lambda: groups(os.getpid()) == there, "the groups of the sandboxes are gone")
    await until(lambda: len(os.listdir("/proc/self/fd")) <= before + 1, "their descriptors are closed")


@pytest.mark.skipif(os.getuid() != 0, reason="control groups belong to root")
@pytest.mark.parametrize("broken", ["cgroups.Cgroup.add", "bwrap._keeper"])
async def test_a_sandbox_without_its_control_groups_is_not_opened(
    monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    await (await open_sandbox(SPEC)).close()
    before = state()

    def refuse(*_: object) -> None:
        raise OSError("no control group today")

    monkeypatch.setattr(f"ors.sandbox.{broken}", refuse)
    with pytest.raises(SandboxUnavailable, match="no control group today"):
        await open_sandbox(SPEC)
    assert state() == before


def test_a_sandbox_that_nobody_closes_ends_with_its_loop() -> None:
    mark = f"mark-{secrets.token_hex(6)}"

    async def leave_open() -> None:
        box = await open_sandbox(SPEC)
        process = await box.spawn(["sh", "-c", "echo here; while :; do sleep 1; done", mark])
        assert await process.read() == b"here\n"
        assert processes(mark)

    there = groups(os.getpid())
    thread = threading.Thread(target=lambda: asyncio.run(leave_open()))
    thread.start()
    thread.join()
    assert processes(mark) == []
    assert groups(os.getpid()) == there


async def test_hundreds_of_lives_leave_nothing_behind() -> None:
    """The soak of `make bench-sandbox` in small: half of the sandboxes are killed in the middle of a call."""
    await (await open_sandbox(SPEC)).close()
    before = state()
    for _ in range(10):
        boxes = await asyncio.gather(*(open_box(SPEC) for _ in range(6)))
        await asyncio.gather(*(live(box, killed=number % 2 == 0) for number, box in enumerate(boxes)))
    assert state() == before


def state() -> dict[str, object]:
    """What a sandbox could leave behind. Other tests use podman, which mounts for itself."""
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    return {
        "children": Path(f"/proc/self/task/{os.getpid()}/children").read_text(),
        "descriptors": sorted(os.listdir("/proc/self/fd")),
        "mounts": [line for line in mounts if "containers" not in line],
        "groups": groups(os.getpid()),
    }


async def live(box: Sandbox, *, killed: bool) -> None:
    """Uses a sandbox, and ends it one way or another."""
    await box.write_file("file", b"x" * 1000)
    running = asyncio.ensure_future(box.exec("cat file; sleep 600" if killed else "cat file"))
    if killed:
        os.kill(box.cell.pid, signal.SIGKILL)
        with pytest.raises(SandboxDead):
            await running
    else:
        assert len((await running).stdout) == 1000
    await box.close()


async def test_without_isolation_the_folder_goes_too_when_answers_are_unread() -> None:
    for _ in range(5):
        box = await open_box(SandboxSpec(backend="none"))
        process = await box.spawn("yes")
        assert await process.read()
        time.sleep(0.02)  # the loop reads nothing meanwhile, so answers of the agent pile up
        await box.close()
        assert not Path(box.work).exists()


@pytest.mark.parametrize("kind", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_sandbox_lives_and_dies_on_every_kind_of_loop(
    kind: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def lives() -> None:
        boxes = await asyncio.gather(*(open_box(SPEC) for _ in range(4)))
        await asyncio.gather(*(live(box, killed=number % 2 == 0) for number, box in enumerate(boxes)))
        async with await open_box(SPEC) as box:
            (copy,) = await box.fork()
            await copy.close()
            assert (await box.exec(["cat"], stdin=bytes(3_000_000), max_output=2**22)).stdout == bytes(
                3_000_000
            )

    states = []
    for _ in range(2):  # the first one may open descriptors that a loop keeps for all others
        with asyncio.Runner(loop_factory=kind) as runner:
            runner.run(lives())
        states.append(state())
    assert states[0] == states[1]


async def test_a_sandbox_is_closed_at_the_end_of_its_block(box: Sandbox) -> None:
    async with await open_sandbox(SPEC) as other:
        pass
    with pytest.raises(SandboxDead):
        await other.exec(["true"])
    assert (await box.exec(["true"])).returncode == 0
