"""What recording costs a call: `python -m bench.recording [--rounds N] [--episodes N]`.

Two servers of ours take turns with the same episodes of ten calls, which are opened and deleted: one records
them, the other does not. Compared is the CPU time of the process for a call, in its event loop and in all.
"""

import argparse
import asyncio
import datetime
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import machine
from bench.environment import Bench
from bench.servers import ROOT
from ors import Server
from ors.client import AsyncORS

CALLS = 10
AT_ONCE = 32


class Subject:
    """One of the two servers."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        self._pid = process.pid
        self._url = process.stdout.readline().strip()
        self.whole: list[float] = []
        """Microseconds of CPU a call, each turn."""
        self.loop: list[float] = []
        """Those of the thread with the event loop."""

    async def turn(self, episodes: int) -> None:
        """Plays the episodes, and measures."""
        whole, loop = machine.cpu_seconds(self._pid), _main_thread_seconds(self._pid)
        async with AsyncORS(self._url) as client:
            numbers = iter(range(episodes))
            await asyncio.gather(*(_play(client, numbers) for _ in range(AT_ONCE)))
        await asyncio.sleep(1.0)  # for the thread that writes
        calls = episodes * CALLS
        self.whole.append((machine.cpu_seconds(self._pid) - whole) / calls * 1e6)
        self.loop.append((_main_thread_seconds(self._pid) - loop) / calls * 1e6)


async def _play(client: AsyncORS, numbers: Iterator[int]) -> None:
    for number in numbers:
        async with client.environment("bench").session(split="train", index=number % 10) as session:
            for _ in range(CALLS):
                await session.call_tool("submit", {"answer": "4"})


def _main_thread_seconds(pid: int) -> float:
    # In nanoseconds, where the file of ticks has hundredths of a second.
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


@contextmanager
def _subject(*flags: str) -> Iterator[Subject]:
    command = [sys.executable, "-m", "bench.recording", *flags]
    with machine.pinned(machine.cores()[0]):
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        yield Subject(process)
    finally:
        process.kill()
        process.communicate()


def _serve(folder: str) -> None:
    from ors.recording import SessionRecorder
    from ors.rollouts.records import RunInfo

    info = RunInfo.gathered({}, kind="sessions")
    observers = [] if folder == "-" else [SessionRecorder(Path(folder), info)]
    Server([Bench], observers=observers).runner(port=0, on_start=lambda url: print(url, flush=True)).run()


async def _compare(on: Subject, off: Subject, rounds: int, episodes: int) -> None:
    for number in range(rounds + 1):
        for subject in (on, off) if number % 2 else (off, on):
            await subject.turn(episodes)
    for subject in (on, off):  # the first turns warm up
        del subject.whole[0], subject.loop[0]


def main() -> None:
    """Measures."""
    parser = argparse.ArgumentParser(prog="python -m bench.recording", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        _serve(given.serve)
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        _subject("--serve", f"{folder}/run") as on,
        _subject("--serve", "-") as off,
        machine.pinned(machine.cores()[1]),
    ):
        asyncio.run(_compare(on, off, given.rounds, given.episodes))
    print(datetime.date.today().isoformat(), machine.described())
    for name, turns in (("in all", (on.whole, off.whole)), ("in the event loop", (on.loop, off.loop))):
        recorded, bare = (statistics.median(each) for each in turns)
        print(f"CPU a call {name}: {recorded:.1f} µs recorded, {bare:.1f} not, {recorded - bare:+.1f}")


if __name__ == "__main__":
    main()
