"""Sandboxes by bubblewrap: opening, running, closing, many at once, and a soak.

`python -m bench.sandbox [--many 300] [--soak 5000] [--rounds 40]`. Times are medians of rounds, one after the
other; each row has its target. The soak opens sandboxes, uses them, kills half of them in the middle of a
call, and then looks for what is left: processes, control groups, mounts, folders, file descriptors.
"""

import argparse
import asyncio
import contextlib
import os
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench import machine
from ors.errors import SandboxDead
from ors.sandbox import Pool, Sandbox, SandboxSpec, open_sandbox
from ors.sandbox.box import open_box

SPEC = SandboxSpec(backend="bwrap")
AT_ONCE = 8

VICTIM = """
import asyncio, sys
from ors.sandbox import SandboxSpec, open_sandbox
async def main():
    boxes = [await open_sandbox(SandboxSpec(backend="bwrap")) for _ in range(5)]
    for box in boxes:
        await box.exec(["sh", "-c", "setsid sh -c 'while :; do sleep 1; done' $0 &", sys.argv[1]])
    print("ready", flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


FILES = """
import os, time
began = time.time()
for n in range(3000):
    open(str(n), 'w').close()
    os.stat(str(n))
    os.unlink(str(n))
print((time.time() - began) * 1000)
"""


def say(name: str, value: float, unit: str, target: str = "") -> None:
    print(f"{name:52} {value:10,.2f} {unit:8} {target}", flush=True)


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return (time.perf_counter() - began) * 1000


async def opening(rounds: int) -> None:
    took_open, took_close = [], []
    for _ in range(rounds):
        began = time.perf_counter()
        box = await open_sandbox(SPEC)
        took_open.append((time.perf_counter() - began) * 1000)
        took_close.append(await timed(box.close))
    say("open", statistics.median(took_open), "ms", "≤ 25")
    say("open, the fastest", min(took_open), "ms")
    say("close", statistics.median(took_close), "ms", "≤ 5")


async def from_pool(rounds: int) -> None:
    took = []
    async with Pool(SPEC, limit=rounds + 1, warm=4) as pool:
        for _ in range(rounds):
            await pool.fill()
            began = time.perf_counter()
            box = await pool.take()
            took.append((time.perf_counter() - began) * 1000)
            await box.close()
    say("open from a pool", statistics.median(took), "ms", "≤ 2")


async def bare() -> None:
    process = await asyncio.create_subprocess_exec("true", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    await process.communicate()


async def running(rounds: int) -> None:
    ours, others = [], []
    async with await open_sandbox(SPEC) as box:
        for _ in range(rounds * 4):
            ours.append(await timed(lambda: box.exec(["true"])))
            others.append(await timed(bare))
    say("exec of true", statistics.median(ours), "ms")
    say("the same as a bare asyncio subprocess", statistics.median(others), "ms")
    say("exec / bare", statistics.median(ours) / statistics.median(others), "times", "≤ 3")


async def files(rounds: int) -> None:
    data = os.urandom(2**20)
    async with await open_sandbox(SPEC) as box:
        write = [await timed(lambda: box.write_file("file", data)) for _ in range(rounds)]
        read = [await timed(lambda: box.read_file("file")) for _ in range(rounds)]
        say("write 1 MB", statistics.median(write), "ms")
        say("read 1 MB", statistics.median(read), "ms")
        with tempfile.TemporaryDirectory() as folder:
            for number in range(2000):
                (Path(folder) / str(number)).write_bytes(data[: 25 * 1024])
            say("upload 2,000 files, 50 MB", await timed(lambda: box.upload(folder, "tree")), "ms")
        await forks(box, 1)
        await forks(box, 16, "≤ 400")
        inside = float((await box.exec(["python3", "-c", FILES], cwd="/tmp")).stdout)
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            outside = float(await asyncio.to_thread(_printed, ["/usr/bin/python3", "-c", FILES], folder))
        say("9,000 file operations inside", inside, "ms")
        say("9,000 file operations on a tmpfs of the host", outside, "ms")


def _printed(argv: list[str], cwd: str) -> bytes:
    return subprocess.check_output(argv, cwd=cwd)


async def forks(box: Sandbox, count: int, target: str = "") -> None:
    forked: list[Sandbox] = []
    took = await timed(lambda: _fork(box, count, forked))
    say(f"fork({count}) with 2,000 files, 50 MB", took, "ms", target)
    say("until the first use of each has ended", took + await timed(lambda: _used(forked)), "ms")
    for each in forked:
        await each.close()


async def _fork(box: Sandbox, count: int, into: list[Sandbox]) -> None:
    into += await box.fork(count)


async def _used(boxes: list[Sandbox]) -> None:
    await asyncio.gather(*(box.exec(["true"]) for box in boxes))


def proportional(pid: int) -> int:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return 1024 * int(text.split("Pss:")[1].split()[0])


def family(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []  # it has ended meanwhile
    return [pid, *(each for child in children for each in family(int(child)))]


async def many(count: int) -> None:
    before = machine.resident_bytes(os.getpid())
    began = time.perf_counter()
    boxes: list[Sandbox] = []
    for _ in range(0, count, AT_ONCE):
        boxes += await asyncio.gather(*(open_box(SPEC) for _ in range(AT_ONCE)))
    took = time.perf_counter() - began
    say(f"{len(boxes)} opened at once, each", took / len(boxes) * 1000, "ms")
    used = sum(proportional(pid) for box in boxes for pid in family(box.cell.pid))
    own = machine.resident_bytes(os.getpid()) - before
    say("memory of each, with its part of the server", (used + own) / len(boxes) / 1e6, "MB", "≤ 6")
    began, done = time.perf_counter(), 0
    while time.perf_counter() - began < 5:
        await asyncio.gather(*(box.exec(["true"]) for box in boxes))
        done += len(boxes)
    say(f"execs over {len(boxes)}", done / (time.perf_counter() - began), "/s", "≥ 500")
    began = time.perf_counter()
    await asyncio.gather(*(box.close() for box in boxes))
    say(f"{len(boxes)} closed, each", (time.perf_counter() - began) / len(boxes) * 1000, "ms")


def killed_server() -> None:
    mark = f"mark-{secrets.token_hex(6)}"
    with subprocess.Popen([sys.executable, "-c", VICTIM, mark], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        began = time.perf_counter()
        server.kill()
        while any(mark.encode() in _words(entry) for entry in Path("/proc").glob("[0-9]*")):
            time.sleep(0.002)
    say("five sandboxes gone after the server's SIGKILL", (time.perf_counter() - began) * 1000, "ms", "≤ 300")


def _words(entry: Path) -> list[bytes]:
    try:
        return (entry / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


async def soak(count: int) -> bool:
    await (await open_sandbox(SPEC)).close()
    before, began = left(), time.perf_counter()
    for start in range(0, count, AT_ONCE):
        boxes = await asyncio.gather(*(open_box(SPEC) for _ in range(min(AT_ONCE, count - start))))
        await asyncio.gather(*(live(box, killed=bool(number % 2)) for number, box in enumerate(boxes)))
    say(f"soak: {count:,} opened, used, half of them killed", time.perf_counter() - began, "s")
    after = left()
    for name, value in after.items():
        print(f"  left: {name}: {'nothing' if value == before[name] else f'{before[name]} -> {value}'}")
    return after == before


async def live(box: Sandbox, *, killed: bool) -> None:
    await box.write_file("file", b"x" * 10_000)
    running = asyncio.ensure_future(box.exec("cat file; sleep 60 & sleep 60" if killed else "cat file"))
    if killed:
        await asyncio.sleep(0)
        os.kill(secrets.choice(family(box.cell.pid)[:2]), signal.SIGKILL)  # bwrap, the agent
    with contextlib.suppress(SandboxDead):
        await asyncio.wait_for(running, 20)
    await box.close()


def left() -> dict[str, object]:
    """What sandboxes could leave behind."""
    groups = [name for _, inner, _ in os.walk("/sys/fs/cgroup") for name in inner]
    return {
        "processes": Path(f"/proc/self/task/{os.getpid()}/children").read_text(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "mounts": len(Path("/proc/self/mounts").read_text().splitlines()),
        "groups": sum(name.startswith(f"ors-{os.getpid()}-") for name in groups),
        "folders": len(list(Path(tempfile.gettempdir()).glob("ors-s*"))),
    }


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--many", type=int, default=300)
    parser.add_argument("--soak", type=int, default=5000)
    given = parser.parse_args()
    machine.allow_many_files()
    print(", ".join(machine.described().values()), f"load {os.getloadavg()[0]:.1f}")
    await opening(given.rounds)
    await from_pool(given.rounds)
    await running(given.rounds)
    await files(given.rounds)
    if given.many:
        await many(given.many)
    killed_server()
    return 0 if not given.soak or await soak(given.soak) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
