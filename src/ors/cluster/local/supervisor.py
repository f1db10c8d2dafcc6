"""N servers as processes of this machine, on one port: started, watched, replaced, ended."""

import os
import selectors
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from types import FrameType

from ors.cluster.handover import inlet
from ors.cluster.local.messages import Assignment, Channel, JSONLines, Orders, WorkerReport
from ors.cluster.local.spawn import Process, memory
from ors.cluster.routing.peers import UNIX
from ors.server.identity import new_incarnation
from ors.server.process.folders import Folder, own_folder

QUICK_SECONDS = 10.0
"""A worker that lives shorter than this has died quickly: the next of its slot waits a little."""
FIRST_BACKOFF, LONGEST_BACKOFF = 0.1, 10.0
LAST_SECONDS = 20.0
"""What a worker that is told to end may take, besides its grace period, before it is killed."""
WEIGH_SECONDS = 1.0
"""How often the memory of workers is looked at, if there is a limit."""
Start = Callable[[Assignment], Process]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """When workers are replaced."""

    drain_seconds: float = 3600.0
    """A worker that is replaced keeps its sessions for so long."""
    retire_seconds: float = 0.0
    """On SIGTERM, sessions may go on for this long."""
    grace_seconds: float = 10.0
    """On shutdown, running calls may go on for this long."""
    max_memory: int | None = None
    """A worker over this is replaced; one over twice this is killed, also if it retires."""
    max_sessions: int | None = None
    """A worker that has had so many sessions is replaced."""


@dataclass(eq=False, slots=True)
class _Worker:
    slot: int
    incarnation: int
    process: Process
    control: socket.socket
    channel: Channel
    place: str
    lines: JSONLines = field(default_factory=JSONLines)
    began: float = field(default_factory=time.monotonic)
    report: WorkerReport | None = None
    retired_until: float | None = None
    told_to_end: bool = False

    @property
    def pid(self) -> int:
        return self.process.pid


class Supervisor:
    """Keeps a worker running in every slot, until a signal comes.

    SIGTERM and SIGINT end all workers, SIGHUP replaces them one after the other by new ones.
    """

    def __init__(
        self,
        start: Start,
        sockets: Sequence[socket.socket],
        policy: Policy,
        on_ready: Callable[[str, list[str]], None],
        say: Callable[[str], None],
    ) -> None:
        self._start = start
        self._sockets = sockets
        self._policy = policy
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
        self._folder: Folder | None = None
        self._weighed = 0.0
        self._wakeup = socket.socketpair()
        self._open: set[socket.socket] = set()  # our ends, also of a worker that is just being started

    def run(self) -> int:
        """Works until it is told to stop; gives the exit code."""
        with ExitStack() as stack:
            self._folder = stack.enter_context(own_folder())
            stack.callback(self._close)
            self._catch_signals()
            self._launch(0)
            while self._stopping is None or self._all():
                self._wait()
                code = self._reap()
                if code is not None:
                    return code
                self._go_on(time.monotonic())
            return 0

    def forget(self) -> None:
        """In a copy of this process: lets go of what is the supervisor's."""
        self._selector.close()
        for each in (*self._wakeup, *self._open):
            each.close()

    # ── Signals and news ─────────────────────────────────────────────────────────────────────────

    def _catch_signals(self) -> None:
        for end in self._wakeup:
            end.setblocking(False)
        signal.set_wakeup_fd(self._wakeup[1].fileno())
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, _noted)
        self._selector.register(self._wakeup[0], selectors.EVENT_READ, None)

    def _wait(self) -> None:
        for key, events in self._selector.select(self._patience(time.monotonic())):
            if key.data is None:
                for number in self._wakeup[0].recv(4096):
                    self._signalled(number)
                continue
            if events & selectors.EVENT_WRITE:
                key.data.channel.flush()
                self._attend(key.data)
            if events & selectors.EVENT_READ:
                self._hear(key.data)

    def _patience(self, now: float) -> float:
        times = [*self._due.values(), *(w.retired_until for w in self._others if w.retired_until is not None)]
        if self._stopping is not None:
            times = [self._stopping]
        if self._policy.max_memory is not None:
            times.append(self._weighed + WEIGH_SECONDS)
        return max(0.0, min(times, default=now + 60.0) - now)

    def _signalled(self, number: int) -> None:
        if number in (signal.SIGINT, signal.SIGTERM):
            retire = self._policy.retire_seconds if number == signal.SIGTERM else 0.0
            if self._stopping is not None:
                retire = 0.0
            until = time.monotonic() + retire + self._policy.grace_seconds + LAST_SECONDS
            self._stopping = min(until, self._stopping or until)
            for worker in self._all():
                _kill(worker, signal.Signals(number))  # of SIGTERM they may heed only the second
        elif number == signal.SIGHUP and self._stopping is None:
            self._say("Replacing all workers")
            self._replacing = deque(sorted(self._current))

    def _hear(self, worker: _Worker) -> None:
        try:
            data = worker.control.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(worker.control)
            return
        for report in worker.lines.feed(data):
            first, worker.report = worker.report is None, WorkerReport(**report)
            if first:
                self._up(worker)
        if worker.report is not None:
            self._judge(worker, worker.report.memory)

    # ── Workers ──────────────────────────────────────────────────────────────────────────────────

    def _all(self) -> list[_Worker]:
        return [*self._current.values(), *self._others]

    def _launch(self, slot: int) -> None:
        """Starts a worker in a slot; it replaces the one that is there when it is ready."""
        self._due.pop(slot, None)
        self._incarnation = max(self._incarnation + 1, new_incarnation())
        assert self._folder is not None
        path = self._folder.path / f"{slot}-{self._incarnation}.sock"
        ours, theirs = socket.socketpair()
        self._open.add(ours)
        with theirs, socket.socket(socket.AF_UNIX) as link:
            link.bind(str(path))
            assignment = Assignment(
                slot,
                self._incarnation,
                theirs.fileno(),
                [each.fileno() for each in self._sockets],
                link.fileno(),
                self._folder.lock,
            )
            process = self._start(assignment)
        worker = _Worker(slot, self._incarnation, process, ours, Channel(ours), f"{UNIX}{path}")
        self._selector.register(ours, selectors.EVENT_READ, worker)
        if slot in self._current:
            self._others.append(worker)
        else:
            self._current[slot] = worker

    def _up(self, worker: _Worker) -> None:
        old = self._current.get(worker.slot)
        if old is not worker:
            self._others.remove(worker)
            self._current[worker.slot] = worker
            if old is not None:
                old.retired_until = time.monotonic() + self._policy.drain_seconds
                self._others.append(old)
        if len(self._current) + len(self._due) < len(self._sockets):  # the first one shows that it works
            for slot in range(1, len(self._sockets)):
                self._launch(slot)
        self._tell_all()
        ready = all(each.report is not None for each in self._current.values())
        if ready and len(self._current) == len(self._sockets) and self._on_ready is not None:
            assert worker.report is not None
            self._on_ready(worker.report.url, list(worker.report.environments))
            self._on_ready = None

    def _tell_all(self) -> None:
        up = [worker for worker in self._all() if worker.report is not None]
        served = {worker.slot for worker in up}
        orphans = [slot for slot in range(len(self._sockets)) if slot not in served]
        places = [worker.place for worker in up]
        for worker in up:
            worker.channel.send(Orders(places, orphans, worker.retired_until is not None))
            self._attend(worker)

    def _attend(self, worker: _Worker) -> None:
        """Waits for what a worker says, and for room if it has not read its orders yet."""
        more = selectors.EVENT_WRITE if worker.channel.waiting else 0
        with suppress(KeyError):  # it listens no more
            self._selector.modify(worker.control, selectors.EVENT_READ | more, worker)

    def _weigh(self, now: float) -> None:
        """Looks at the memory of all workers, since one whose event loop is blocked reports nothing."""
        if self._policy.max_memory is None or now < self._weighed + WEIGH_SECONDS:
            return
        self._weighed = now
        for worker in self._all():
            held = memory(worker.pid)
            if worker.report is not None and held is not None:
                self._judge(worker, held)

    def _judge(self, worker: _Worker, held: int) -> None:
        report, policy = worker.report, self._policy
        if policy.max_memory is not None and held > 2 * policy.max_memory:
            self._say(f"Worker {worker.slot} has {held >> 20} MiB: it is killed")
            _kill(worker, signal.SIGKILL)
            return
        if report is None or self._current.get(worker.slot) is not worker:
            return
        heavy = policy.max_memory is not None and held > policy.max_memory
        worn = policy.max_sessions is not None and report.created >= policy.max_sessions
        if (heavy or worn) and worker.slot not in self._replacing and not self._replacement(worker.slot):
            self._replacing.append(worker.slot)

    def _replacement(self, slot: int) -> bool:
        return any(worker.slot == slot and worker.retired_until is None for worker in self._others)

    # ── Deaths ───────────────────────────────────────────────────────────────────────────────────

    def _reap(self) -> int | None:
        """Notices who has ended; gives an exit code if nothing can be served at all."""
        for worker in self._all():
            code = worker.process.poll()
            if code is None:
                continue
            self._bury(worker)
            if self._on_ready is not None and worker.report is None and worker.slot == 0:
                return code or 1  # the first of all does not start: it has said why
            if self._stopping is None and worker.retired_until is None:
                self._died(worker, code)
            self._tell_all()
        return None

    def _bury(self, worker: _Worker) -> None:
        if self._current.get(worker.slot) is worker:
            del self._current[worker.slot]
        else:
            self._others.remove(worker)
        with suppress(KeyError):
            self._selector.unregister(worker.control)
        self._open.discard(worker.control)
        worker.control.close()
        link = worker.place.removeprefix(UNIX)
        for path in (link, inlet(link)):
            with suppress(FileNotFoundError):
                os.unlink(path)

    def _died(self, worker: _Worker, code: int) -> None:
        if worker.slot in self._current:  # a replacement that was never ready
            self._say(
                f"A new worker {worker.slot} ended with {code} before it was ready; the old one goes on"
            )
            return
        now = time.monotonic()
        quick = now - worker.began < QUICK_SECONDS
        deaths = self._deaths[worker.slot] = self._deaths.get(worker.slot, 0) + 1 if quick else 0
        wait = min(FIRST_BACKOFF * 2 ** (deaths - 1), LONGEST_BACKOFF) if deaths else 0.0
        self._due[worker.slot] = now + wait
        self._say(
            f"Worker {worker.slot} (process {worker.pid}) ended with {code}; the next starts in {wait:g} s"
        )

    def _go_on(self, now: float) -> None:
        """Does what is due."""
        self._weigh(now)
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
                # Its sessions have had their time; the second time, it too.
                _kill(worker, signal.SIGKILL if worker.told_to_end else signal.SIGINT)
                worker.retired_until = now + self._policy.grace_seconds + LAST_SECONDS
                worker.told_to_end = True
        if self._replacing and not any(worker.retired_until is None for worker in self._others):
            slot = self._replacing.popleft()
            if slot in self._current and self._current[slot].report is not None:
                self._launch(slot)

    def _close(self) -> None:
        signal.set_wakeup_fd(-1)
        for worker in self._all():
            _kill(worker, signal.SIGKILL)
        self.forget()


def _kill(worker: _Worker, number: signal.Signals) -> None:
    if worker.process.poll() is None:
        with suppress(ProcessLookupError):
            os.kill(worker.pid, number)
            os.kill(worker.pid, signal.SIGCONT)  # one that stands still would not hear it


def _noted(number: int, frame: FrameType | None) -> None:
    """The number is in the wakeup socket."""
