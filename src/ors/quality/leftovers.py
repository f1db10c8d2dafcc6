"""Examines leftovers of episodes: failed teardowns, threads, processes, files, memory."""

import asyncio
import gc
import inspect
import os
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ors import Environment
from ors.quality.subject import EnvironmentUnderTest, Sample

OURS = ("ors-", "asyncio_", "AnyIO", "uvicorn")
SETTLE_SECONDS = 2.0
GROWTH_BYTES = 8 * 1024
"""More than this per episode, twice in a row, is growth."""
FEWEST_EPISODES = 10
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
PATHS = {"open": 0, "os.mkdir": 0, "sqlite3.connect": 0, "os.rename": 1, "os.link": 1, "os.symlink": 1}
"""Audit events of new files, and which of their arguments is the path."""
NOT_FILES = ("/dev/", "/proc/", "/sys/")


@dataclass
class Teardowns:
    called: int = 0
    failures: list[str] = field(default_factory=list)


@contextmanager
def watched(cls: type[Environment]) -> Iterator[Teardowns]:
    """Counts the teardowns of a class while the block runs."""
    seen = Teardowns()
    original: Callable[[Any], Any] = cls.teardown

    async def teardown(self: Environment) -> None:
        seen.called += 1
        try:
            plain = not inspect.iscoroutinefunction(original)
            result = await asyncio.to_thread(original, self) if plain else original(self)
            if inspect.isawaitable(result):
                await result
        except Exception as error:
            seen.failures.append(f"{type(error).__name__}: {error}")
            raise

    with patch.object(cls, "teardown", teardown):
        yield seen


async def examine(subject: EnvironmentUnderTest) -> None:
    if subject.cls is None:
        for name in ("teardown", "threads, processes and files", "memory"):
            subject.report.not_tried[name] = "needs a TARGET"
        return
    if not subject.samples:
        subject.report.not_tried["leftovers"] = "no episode opens"
        return
    with own_tempdir() as home, watched(subject.cls) as teardowns:
        with files_made() as made:
            threads_end = await _leftovers(subject, home, teardowns, made)
        if threads_end:
            await _memory(subject)  # without the names of files, which would count as kept


async def _leftovers(subject: EnvironmentUnderTest, home: Path, teardowns: Teardowns, made: set[str]) -> bool:
    """Returns whether all threads of the episodes have ended."""
    await _episode(subject, subject.samples[0])  # creates everything that all episodes share
    kept = below(home) | still_there(made, home)
    threads, processes = set(threading.enumerate()), _processes(home)
    for sample in subject.samples:
        await _episode(subject, sample)
    await _settled(lambda: not _new_threads(threads) and not _processes(home) - processes)
    files = (below(home) | still_there(made, home)) - kept
    _report(subject, teardowns, _new_threads(threads), _processes(home) - processes, files)
    return not _new_threads(threads)


async def _episode(subject: EnvironmentUnderTest, sample: Sample) -> None:
    await subject.try_play(sample, subject.random_actions(subject.tools, subject.plan.seed))


async def _settled(done: Callable[[], bool]) -> None:
    """Waits briefly: threads and processes that end soon after their episode are no leftovers."""
    until = time.monotonic() + SETTLE_SECONDS
    while not done() and time.monotonic() < until:  # noqa: ASYNC110  (there is no event for the end of a thread)
        await asyncio.sleep(0.02)


def _report(
    subject: EnvironmentUnderTest,
    teardowns: Teardowns,
    threads: set[str],
    processes: set[int],
    files: set[str],
) -> None:
    report = subject.report
    if teardowns.failures:
        report.found("teardown", f"teardown() raised {teardowns.failures[0]}")
    if not teardowns.called:
        fix = "Environment code must not end the process or block the end of a session."
        report.found("teardown", "teardown() was not called", fix=fix)
    for id, left in (("threads", threads), ("processes", processes), ("files", files)):
        if left:
            text = f"{len(left)} {id} are left after the last teardown: "
            fix = f"Stop or remove the {id} of the episode in teardown()."
            report.found(id, text + ", ".join(sorted(map(str, left))[:3]), fix=fix)


def _new_threads(before: set[threading.Thread]) -> set[str]:
    now = (thread for thread in threading.enumerate() if thread not in before)
    return {thread.name for thread in now if not thread.name.startswith(OURS)}


def _processes(home: Path) -> set[int]:
    """Child processes of this process, including zombies, and their children.

    An orphan has another parent, but still has our temporary folder in its environment.
    """
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            ours = parent == os.getpid() or os.fsencode(home) in (folder / "environ").read_bytes()
        except OSError:
            continue  # it has ended, or belongs to another user
        if ours and pid != os.getpid():
            found.add(pid)
    return found


# ── Memory ───────────────────────────────────────────────────────────────────────────────────────


async def _memory(subject: EnvironmentUnderTest) -> None:
    until = time.monotonic() + subject.plan.seconds
    tracemalloc.start()
    subject.traced = True
    try:
        await _round(subject, FEWEST_EPISODES, until)
        sizes, counts = [_traced()], list[int]()
        for _ in range(2):
            counts.append(await _round(subject, subject.plan.episodes // 2, until))
            sizes.append(_traced())
    finally:
        subject.traced = False
        tracemalloc.stop()
    if min(counts) < FEWEST_EPISODES:
        few = f"under {2 * FEWEST_EPISODES} episodes in {subject.plan.seconds:g} s"
        subject.report.not_tried["memory"] = few
        return
    growth = [(sizes[n + 1] - sizes[n]) / counts[n] for n in range(2)]
    subject.report.figures["bytes kept per episode"] = max(0, round(growth[1]))
    if min(growth) > GROWTH_BYTES:
        subject.report.found("memory", f"every episode leaks {min(growth) / 1024:.0f} KiB")


async def _round(subject: EnvironmentUnderTest, episodes: int, until: float) -> int:
    for number in range(episodes):
        if time.monotonic() > until:
            return number
        await _episode(subject, subject.samples[number % len(subject.samples)])
    return episodes


def _traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


# ── Files ────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def own_tempdir() -> Iterator[Path]:
    """Replaces the temporary folder of this process while the block runs."""
    with (
        tempfile.TemporaryDirectory(prefix="ors-test-", ignore_cleanup_errors=True) as home,
        patch.object(tempfile, "tempdir", home),
        patch.dict(os.environ, TMPDIR=home),
    ):
        yield Path(home)


def below(home: Path) -> set[str]:
    return {str(path.relative_to(home)) for path in home.rglob("*")}


@contextmanager
def files_made() -> Iterator[set[str]]:
    """Records the files and folders that this process creates anywhere while the block runs."""
    made: set[str] = set()
    watching = True

    def hook(event: str, given: tuple[Any, ...]) -> None:
        if watching and (path := _target(event, given)) and not os.path.lexists(path):
            made.add(path)

    sys.addaudithook(hook)  # hooks cannot be removed, only switched off
    try:
        yield made
    finally:
        watching = False


def _target(event: str, given: tuple[Any, ...]) -> str | None:
    if event == "open" and not (isinstance(given[2], int) and given[2] & WRITING):
        return None
    place = PATHS.get(event)
    path = None if place is None else given[place]
    return os.path.abspath(os.fsdecode(path)) if isinstance(path, str | bytes | os.PathLike) else None


def still_there(made: set[str], home: Path) -> set[str]:
    return {
        path
        for path in made
        if os.path.lexists(path)
        and not path.startswith((f"{home}{os.sep}", *NOT_FILES))
        and "__pycache__" not in path
    }
