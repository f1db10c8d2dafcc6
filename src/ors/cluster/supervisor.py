"""Runs workers on this machine: starts, watches, replaces and ends them."""

import os
import selectors
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

from ors.cluster.handover import handover_path
from ors.cluster.peers import UNIX
from ors.cluster.worker import (
    Channel,
    WorkerConfig,
    WorkerReport,
    WorkerUpdate,
)
from ors.limits import Limits
from ors.server.sessions.shared import new_incarnation

QUICK_SECONDS = 10.0
"""After a worker that ended sooner than this, the next one of its slot waits a little."""
FIRST_BACKOFF, LONGEST_BACKOFF = 0.1, 10.0
TICK_SECONDS = 0.1
"""How often it looks at what is due; signals and reports wake it."""
LAST_SECONDS = 20.0
"""How long a worker may take to end after its grace period, before it is killed."""
MEMORY_SECONDS = 1.0
"""How often the memory of workers is checked, if there is a limit."""
Start = Callable[[WorkerConfig], subprocess.Popen[bytes]]


@dataclass(eq=False, slots=True)
class _Worker:
    slot: int
    incarnation: int
    process: subprocess.Popen[bytes]
    control: socket.socket
    channel: Channel
    address: str
    began: float = field(default_factory=time.monotonic)
    report: WorkerReport | None = None
    retired_until: float | None = None
    told_to_end: bool = False

    @property
    def pid(self) -> int:
        return self.process.pid


class Supervisor:
    """Keeps a worker running in every slot, until a signal comes.

    SIGTERM, SIGINT and the end of its terminal end all workers, SIGHUP replaces them one after the other. A
    replaced worker keeps its sessions for at most `drain_seconds`. One that uses more than `max_memory` bytes
    is replaced; above twice that it is killed, even while it retires.
    """

    def __init__(
        self,
        start: Start,
        sockets: Sequence[socket.socket],
        limits: Limits,
        drain_seconds: float,
        max_memory: int | None,
        on_ready: Callable[[str, list[str]], None],
        say: Callable[[str], None],
    ) -> None:
        self._start = start
        self._sockets = sockets
        self._limits = limits
        self._drain_seconds = drain_seconds
        self._max_memory = max_memory
        self._on_ready: Callable[[str, list[str]], None] | None = on_ready
        self._say = say
        self._current: dict[int, _Worker] = {}
        self._others: list[_Worker] = []  # replacements that are not ready, and workers that retire
        self._due: dict[int, float] = {}  # slots without a worker: when the next one starts
        self._deaths: dict[int, int] = {}  # of each slot, how many died quickly one after the other
        self._replacing: deque[int] = deque()
        self._incarnation = 0
        self._stopping: float | None = None
        self._selector = selectors.DefaultSelector()
        self._folder: Path | None = None  # of the sockets for links
        self._memory_checked = 0.0
        self._wakeup = socket.socketpair()
        self._in_terminal = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and _has_terminal()

    def run(self) -> int:
        """Runs until a signal ends it; returns the exit code."""
        with ExitStack() as stack:
            self._folder = Path(stack.enter_context(TemporaryDirectory(prefix="ors-")))
            stack.callback(self.close)
            self._catch_signals()
            self._launch(0)
            while self._stopping is None or self._all():
                self._wait()
                code = self._reap()
                if code is not None:
                    return code
                self._do_due(time.monotonic())
            return 0

    # ── Signals and reports ──────────────────────────────────────────────────────────────────────

    def _catch_signals(self) -> None:
        for end in self._wakeup:
            end.setblocking(False)
        signal.set_wakeup_fd(self._wakeup[1].fileno())
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, _ignore)
        self._selector.register(self._wakeup[0], selectors.EVENT_READ, None)

    def _wait(self) -> None:
        for key, _ in self._selector.select(TICK_SECONDS):
            if key.data is not None:
                self._read(key.data)
                continue
            for number in self._wakeup[0].recv(4096):
                self._on_signal(number)
        for worker in self._all():
            worker.channel.flush()

    def _on_signal(self, number: int) -> None:
        hung_up = number == signal.SIGHUP and self._in_terminal and not _has_terminal()
        if number in (signal.SIGINT, signal.SIGTERM) or hung_up:
            retire = self._limits.retire_seconds if number == signal.SIGTERM else 0.0
            if self._stopping is not None:
                retire = 0.0
            until = time.monotonic() + retire + self._limits.grace_seconds + LAST_SECONDS
            self._stopping = min(until, self._stopping or until)
            for worker in self._all():
                # With retire_seconds, workers end only at the second SIGTERM.
                _kill(worker, signal.Signals(number))
        elif number == signal.SIGHUP and self._stopping is None:
            self._say("Replacing all workers")
            self._replacing = deque(sorted(self._current))

    def _read(self, worker: _Worker) -> None:
        reports = worker.channel.receive()
        if reports is None:
            self._selector.unregister(worker.control)
        for report in reports or ():
            first, worker.report = worker.report is None, WorkerReport(**report)
            if first:
                self._started(worker)

    # ── Workers ──────────────────────────────────────────────────────────────────────────────────

    def _all(self) -> list[_Worker]:
        return [*self._current.values(), *self._others]

    def _launch(self, slot: int) -> None:
        """Starts a worker in a slot; once ready, it replaces the one that is there."""
        self._due.pop(slot, None)
        self._incarnation = max(self._incarnation + 1, new_incarnation())
        assert self._folder is not None
        path = self._folder / f"{slot}-{self._incarnation}.sock"
        ours, theirs = socket.socketpair()
        with theirs, socket.socket(socket.AF_UNIX) as link:
            link.bind(str(path))
            config = WorkerConfig(
                slot,
                self._incarnation,
                theirs.fileno(),
                [each.fileno() for each in self._sockets],
                link.fileno(),
            )
            process = self._start(config)
        worker = _Worker(slot, self._incarnation, process, ours, Channel(ours), f"{UNIX}{path}")
        self._selector.register(ours, selectors.EVENT_READ, worker)
        if slot in self._current:
            self._others.append(worker)
        else:
            self._current[slot] = worker

    def _end(self, worker: _Worker, now: float) -> None:
        """Asks a worker to end; the second time, kills it."""
        _kill(worker, signal.SIGKILL if worker.told_to_end else signal.SIGINT)
        worker.retired_until = now + self._limits.grace_seconds + LAST_SECONDS
        worker.told_to_end = True

    def _started(self, worker: _Worker) -> None:
        old = self._current.get(worker.slot)
        if old is not worker:
            self._others.remove(worker)
            self._current[worker.slot] = worker
            if old is not None:
                old.retired_until = time.monotonic() + self._drain_seconds
                self._others.append(old)
        if self._on_ready is not None and len(self._current) + len(self._due) < len(self._sockets):
            for slot in range(1, len(self._sockets)):  # the first one has shown that it works
                self._launch(slot)
        self._update_all()
        ready = all(each.report is not None for each in self._current.values())
        if ready and len(self._current) == len(self._sockets) and self._on_ready is not None:
            assert worker.report is not None
            self._on_ready(worker.report.url, list(worker.report.environments))
            self._on_ready = None

    def _update_all(self) -> None:
        up = [worker for worker in self._all() if worker.report is not None]
        served = {worker.slot for worker in up}
        empty = [slot for slot in range(len(self._sockets)) if slot not in served]
        addresses = [worker.address for worker in up]
        for worker in up:
            worker.channel.send(WorkerUpdate(addresses, empty, worker.retired_until is not None))

    def _check_memory(self, now: float) -> None:
        limit = self._max_memory
        if limit is None or now < self._memory_checked + MEMORY_SECONDS:
            return
        self._memory_checked = now
        for worker in [worker for worker in self._all() if worker.report is not None]:
            used = _memory(worker.pid) or 0
            if used > 2 * limit:
                self._say(f"Killing worker {worker.slot}: it uses {used >> 20} MiB")
                _kill(worker, signal.SIGKILL)
            elif used > limit and self._current.get(worker.slot) is worker:
                self._replace_later(worker.slot)

    def _replace_later(self, slot: int) -> None:
        coming = any(worker.slot == slot and worker.retired_until is None for worker in self._others)
        if slot not in self._replacing and not coming:
            self._replacing.append(slot)

    # ── Ended workers ────────────────────────────────────────────────────────────────────────────

    def _reap(self) -> int | None:
        """Removes workers that have ended; returns an exit code if one could not start, as the first ones."""
        for worker in self._all():
            code = worker.process.poll()
            if code is None:
                continue
            self._remove(worker)
            if self._stopping is None:
                if self._on_ready is not None and worker.report is None and (code > 0 or worker.slot == 0):
                    return code or 1  # it has printed why, and would do so again
                if worker.retired_until is None:
                    self._restart_later(worker, code)
            self._update_all()
        return None

    def _remove(self, worker: _Worker) -> None:
        if self._current.get(worker.slot) is worker:
            del self._current[worker.slot]
        else:
            self._others.remove(worker)
        with suppress(KeyError):
            self._selector.unregister(worker.control)
        worker.control.close()
        link = worker.address.removeprefix(UNIX)
        for path in (link, handover_path(link)):
            with suppress(FileNotFoundError):
                os.unlink(path)

    def _restart_later(self, worker: _Worker, code: int) -> None:
        if worker.slot in self._current:  # a replacement that was never ready
            self._say(f"New worker {worker.slot} exited with {code} before it was ready; keeping the old one")
            return
        now = time.monotonic()
        quick = now - worker.began < QUICK_SECONDS
        deaths = self._deaths[worker.slot] = self._deaths.get(worker.slot, 0) + 1 if quick else 0
        wait = min(FIRST_BACKOFF * 2 ** (deaths - 1), LONGEST_BACKOFF) if deaths else 0.0
        self._due[worker.slot] = now + wait
        self._say(f"Worker {worker.slot} (process {worker.pid}) exited with {code}; restarting in {wait:g} s")

    def _do_due(self, now: float) -> None:
        self._check_memory(now)
        if self._stopping is not None:
            if now > self._stopping:
                for worker in self._all():
                    _kill(worker, signal.SIGKILL)
                self._stopping = now + LAST_SECONDS
            return
        for slot in [slot for slot, due in self._due.items() if due <= now]:
            self._launch(slot)
        for worker in self._others:
            if worker.retired_until is not None and worker.retired_until <= now:
                self._end(worker, now)
        if self._replacing and not any(worker.retired_until is None for worker in self._others):
            slot = self._replacing.popleft()
            if slot in self._current and self._current[slot].report is not None:
                self._launch(slot)

    def close(self) -> None:
        """Kills all workers, and closes the supervisor's sockets."""
        signal.set_wakeup_fd(-1)
        for worker in self._all():
            _kill(worker, signal.SIGKILL)
            worker.control.close()
        self._selector.close()
        for end in self._wakeup:
            end.close()


def _has_terminal() -> bool:
    with suppress(OSError):
        os.close(os.open("/dev/tty", os.O_RDONLY))
        return True
    return False


def _kill(worker: _Worker, number: signal.Signals) -> None:
    if worker.process.poll() is None:
        with suppress(ProcessLookupError):
            os.kill(worker.pid, number)
            os.kill(worker.pid, signal.SIGCONT)  # a stopped process does not see signals


def _ignore(number: int, frame: FrameType | None) -> None:
    """Does nothing: the wakeup socket has the number of the signal."""


def _memory(pid: int) -> int | None:
    """The resident memory of a process in bytes; None where the system does not tell."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):  # another system; or it has just ended
        return None
