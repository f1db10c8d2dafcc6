"""The machine under the figures: its cores, how quiet it is, and what class it is of."""

import os
import platform
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

OPEN_FILES = 12_000
"""What 5,000 connections need, with room."""
QUIET = 0.1
"""The share of the machine that others may take before a figure of time is worth little."""
_TICK = 1 / os.sysconf("SC_CLK_TCK")


def cores() -> tuple[int, int]:
    """The core of the server under test, and the core of whoever puts the load on it."""
    usable = sorted(os.sched_getaffinity(0))
    return usable[0], usable[-1]


@contextmanager
def pinned(core: int) -> Iterator[None]:
    """Whatever is started within runs on this core alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def allow_many_files() -> None:
    """Raises the limit of open files, for ourselves and for what we start."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used, of the user's and of the system's kind."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK


def resident_bytes(pid: int) -> int:
    """Memory that a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def most_resident_bytes(pid: int) -> int:
    """The most memory that a process ever had."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) * 1024


class Noise:
    """What others took of the machine since this was made."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._before = _busy_seconds()

    def share(self, own_seconds: float) -> float:
        """The part of all cores' time that went to others, beside the CPU time we used ourselves."""
        took = _busy_seconds() - self._before - own_seconds
        return max(0.0, took / (os.cpu_count() or 1) / (time.monotonic() - self._began))


def noise_now(seconds: float = 0.3) -> float:
    """What others take of the machine at this moment."""
    noise = Noise()
    time.sleep(seconds)
    return noise.share(0.0)


def children_seconds() -> float:
    """CPU time of all processes that we have started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _busy_seconds() -> float:
    # user, nice, system, (idle, iowait,) irq, softirq, steal: the last is what other virtual machines took
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) * _TICK


def described() -> dict[str, str]:
    """What a reader needs to place the figures."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return {
        "processor": f"{os.cpu_count()} cores of {model}",
        "memory": f"{memory:.0f} GiB",
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
    }
