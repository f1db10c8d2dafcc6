"""The agent: the process inside a sandbox that starts programs and moves files for the server outside.

The text of this module runs on the Python inside the sandbox, 3.8 or newer. It imports next to nothing, for
each module costs every sandbox time and memory. The server trusts no answer: see `process.py`.

A request is a length of four bytes and a marshalled tuple: (operation, id, arguments…). An answer is the
id in four bytes, its kind in one, a length in four, and bytes.
"""

from __future__ import annotations

import marshal
import os
import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ors.sandbox.inside.archive import CHANGES, PIECE, leaves, pack, reader, unpack, write_all
    from ors.sandbox.inside.child import KILL, REPORT, Child, check_regular, forked, pipes, spawned
    from ors.sandbox.inside.usage import lock, open_way_out, overuse, overview, processes

WINDOW = 1 << 20
"""Most bytes of a stream that the server has not taken yet; the program waits beyond that."""
CHUNK = 1 << 16
TICK = 0.1
"""Seconds between two looks at memory and files."""


class InsideAgent:
    def __init__(self, settings: dict[str, Any]) -> None:
        import _signal  # type: ignore[import-not-found]  # `signal` would load enum

        self.settings = settings
        self.children: dict[int, Child] = {}
        self.buffer = bytearray()
        self.next_tick, self.crowd = 0.0, False
        self.grades = False
        self.oom = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
        self.own_oom = os.read(self.oom, 16).strip()
        self.wake, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        _signal.signal(_signal.SIGCHLD, lambda *_: None)
        _signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        # The first process of a namespace takes no signal without a handler, and Python has one for SIGINT.
        _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
        _signal.signal(_signal.SIGXCPU, _signal.SIG_IGN)  # the limit is for programs
        self.defaults = [_signal.SIGINT, _signal.SIGPIPE, _signal.SIGXFSZ, _signal.SIGXCPU]

    # ── The loop ─────────────────────────────────────────────────────────────────────────────────

    def serve(self) -> None:
        while True:
            poll = select.poll()
            poll.register(0, select.POLLIN)
            poll.register(self.wake, select.POLLIN)
            owners = dict(self.watched(poll))
            for fd, _ in poll.poll(self.patience()):
                if fd == 0:
                    self.receive()
                elif fd == self.wake:
                    os.read(self.wake, 4096)
                elif owners[fd].number in self.children:
                    self.ready(owners[fd], fd)
            self.reap()
            self.check_time()
            for child in [each for each in self.children.values() if each.status is not None]:
                self.finish(child)

    def watched(self, poll: select.poll) -> Iterator[tuple[int, Child]]:
        for child in self.children.values():
            if child.unread < WINDOW:
                for fd in child.outputs:
                    poll.register(fd, select.POLLIN)
                    yield fd, child
            if child.pending:
                poll.register(child.stdin, select.POLLOUT)
                yield child.stdin, child

    def patience(self) -> int | None:
        times = [child.deadline for child in self.children.values() if child.deadline and not child.stopped]
        if self.settings["places"] and (self.children or self.crowd):
            times.append(self.next_tick)
        return max(0, int((min(times) - time.monotonic()) * 1000) + 1) if times else None

    def receive(self) -> None:
        """Takes requests from the server; its end is the end of the sandbox."""
        data = os.read(0, CHUNK)
        if not data:
            self.leave()
        self.buffer += data
        while len(self.buffer) >= 4:
            end = 4 + int.from_bytes(self.buffer[:4], "big")
            if len(self.buffer) < end:
                return
            request = marshal.loads(self.buffer[4:end])
            del self.buffer[:end]
            try:
                getattr(self, "on_" + request[0])(*request[1:])
            except Exception as error:  # whatever was asked for, the agent goes on
                self.fail(request[1], error)

    def leave(self) -> None:
        """Ends the sandbox. In a namespace of its own the kernel ends all other processes."""
        for child in self.children.values():
            child.stop("")
        if not self.settings["places"]:
            self.sweep()
        if self.settings["folder"]:
            import shutil

            shutil.rmtree(self.settings["folder"], ignore_errors=True)
        os._exit(0)

    def sweep(self) -> None:
        """Kills all descendants: those whose parents have ended are children of the agent."""
        try:
            while True:
                with open("/proc/thread-self/children") as file:
                    for pid in file.read().split():
                        os.kill(int(pid), KILL)
                os.wait()
        except OSError:  # no child is left
            return

    def say(self, number: int, kind: bytes, data: bytes = b"") -> None:
        message = b"%b%b%b%b" % (number.to_bytes(4, "big"), kind, len(data).to_bytes(4, "big"), data)
        view = memoryview(message)
        while view:
            view = view[os.write(1, view) :]

    # ── Programs ─────────────────────────────────────────────────────────────────────────────────

    def on_spawn(
        self, number: int, argv: list[bytes], env: dict[bytes, bytes], cwd: bytes, *streams: Any
    ) -> None:
        def start(fds: list[int]) -> int:
            if not os.path.isdir(self.mapped(cwd)):
                raise FileNotFoundError(2, "there is no folder " + os.fsdecode(cwd))
            os.chdir(self.mapped(cwd))
            return spawned(argv, env, fds, self.defaults, self.grades)

        self.begin(number, start, argv[0] + b": ", *streams)

    def on_pack(self, number: int, base: bytes, names: dict[bytes, bytes], most: tuple[int, ...]) -> None:
        def work() -> None:
            pack(self.mapped(base), names, lambda data: write_all(1, data), unlock=True, most=most)

        self.begin(number, lambda fds: forked(fds, work), b"5 ", b"", True)

    def on_unpack(self, number: int, base: bytes, within: bytes) -> None:
        """Takes files from the server, in a process of its own. A grader has no links out of `within`."""
        self.grades = bool(within and self.settings["places"])

        def work() -> None:
            with open(0, "rb", PIECE) as stream:
                made = unpack(self.mapped(base), reader(stream), links=True)
            for link in made:
                if within and leaves(self.mapped(within), link):
                    os.unlink(link)

        self.begin(number, lambda fds: forked(fds, work), b"5 ", b"", False)

    def begin(
        self,
        number: int,
        start: Callable[[list[int]], int],
        complaint: bytes,
        stdin: bytes,
        eof: bool,
        timeout: float = 0,
        most: int = 0,
        reports: bool = False,
    ) -> None:
        theirs, ours = pipes(eof and not stdin, reports)
        try:
            os.write(self.oom, b"1000")
            pid = start(theirs)
        except OSError as error:
            for fd in ours:
                if fd >= 0:
                    os.close(fd)
            self.refuse(number, error, complaint)
            return
        finally:
            os.write(self.oom, self.own_oom)
            for fd in theirs:
                os.close(fd)
        child = Child(number, pid, ours, time.monotonic() + timeout if timeout else 0, most)
        if not self.children and not self.crowd:
            self.next_tick = time.monotonic() + TICK
        self.children[number] = child
        if child.stdin >= 0:
            self.on_stdin(number, stdin, eof)

    def refuse(self, number: int, error: OSError, complaint: bytes) -> None:
        if error.errno in (11, 12):  # no more processes, no more memory
            self.say(number, b"F")
            return
        self.say(number, b"E", complaint + (error.strerror or "").encode() + b"\n")
        self.say(number, b"X", b"%d " % (127 if error.errno == 2 else 126))

    def on_stdin(self, number: int, data: bytes, eof: bool) -> None:
        child = self.children.get(number)
        if child is None:
            return
        if child.stdin < 0:
            self.say(number, b"A", b"%d" % len(data))  # the program has closed it
            return
        child.pending += [memoryview(data)] if data else []
        child.eof = eof
        self.feed(child)

    def feed(self, child: Child) -> None:
        taken = child.feed()
        if taken:
            self.say(child.number, b"A", b"%d" % taken)

    def on_taken(self, number: int, count: int) -> None:
        if number in self.children:
            self.children[number].unread -= count

    def on_kill(self, number: int, signal: int) -> None:
        child = self.children.get(number)
        if child is not None and signal == KILL:
            child.stop("kill")
        elif child is not None and child.status is None and signal != 19:  # which the filter refuses
            os.killpg(child.pid, signal)

    def ready(self, child: Child, fd: int) -> None:
        if fd == child.stdin:
            self.feed(child)
        elif fd in child.outputs:
            if child.outputs[fd] == REPORT:  # what was printed before a report arrives before it
                self.drain(child, [other for other in child.outputs if other != fd])
            self.take(child, fd)

    def take(self, child: Child, fd: int) -> bool:
        """Passes output of a program on; says whether there may be more."""
        try:
            data = child.bounded(fd, os.read(fd, CHUNK))
        except BlockingIOError:
            return False
        if not data:
            if child.limit != "output":
                os.close(fd)
                del child.outputs[fd]
            return False
        child.unread += len(data)
        self.say(child.number, child.outputs[fd], data)
        return True

    def reap(self) -> None:
        """Collects what has ended; the orphans of all programs come here too."""
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
                for child in self.children.values():
                    if child.pid == pid:
                        child.status = code
        except ChildProcessError:
            pass

    def finish(self, child: Child) -> None:
        """Sends what an ended program has left in its pipes, and how it ended."""
        if child.unread >= WINDOW:
            return
        self.drain(child, list(child.outputs))
        for fd in child.outputs:
            os.close(fd)
        child.close_stdin()
        del self.children[child.number]
        self.say(child.number, b"X", b"%d %b" % (child.status or 0, child.limit.encode()))

    def drain(self, child: Child, fds: list[int]) -> None:
        for fd in fds:
            for _ in range(16):  # all that a pipe can hold; a process that was left behind may write for ever
                if not self.take(child, fd):
                    break

    # ── Limits ───────────────────────────────────────────────────────────────────────────────────

    def check_time(self) -> None:
        """Stops programs that are over their time, and looks at memory and files now and then."""
        now = time.monotonic()
        for child in self.children.values():
            if child.deadline and now >= child.deadline and not child.stopped:
                child.stop("time")
        if now >= self.next_tick and self.settings["places"] and (self.children or self.crowd):
            self.next_tick = now + TICK
            try:
                pids = processes()
                self.crowd = bool(pids)
                for pid, limit in overuse(pids, self.settings):
                    self.end_process(pid, limit)
                    self.next_tick = now + TICK / 10
            except OSError:  # too many open files, or no memory: look again later
                return

    def end_process(self, pid: int, limit: str) -> None:
        """Kills one process, and notes the limit for the program that it belongs to."""
        try:
            session = os.getsid(pid)
            os.kill(pid, KILL)
        except OSError:
            return
        for child in self.children.values():
            if child.pid == session:
                child.limit = child.limit or limit

    # ── Files ────────────────────────────────────────────────────────────────────────────────────

    def mapped(self, path: bytes) -> bytes:
        """Path on this file system; without isolation /work and /home are elsewhere."""
        path = os.path.normpath(os.path.join(os.fsencode(self.settings["workdir"]), path))
        folder = self.settings["folder"]
        if folder and (path == b"/" or path.split(b"/")[1] in (b"work", b"home")):
            return os.path.normpath(os.fsencode(folder) + path)
        return path

    def on_read(self, number: int, path: bytes, most: int) -> None:
        fd = os.open(self.mapped(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            check_regular(fd)
            if os.fstat(fd).st_size > most:
                raise OSError(27, "File too large")
            while data := os.read(fd, min(CHUNK, most)):
                most -= len(data)
                self.say(number, b"D", data)
        finally:
            os.close(fd)
        self.say(number, b"K")

    def on_write(self, number: int, path: bytes, data: bytes, mode: int) -> None:
        target = self.mapped(path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        fd = os.open(target, flags, mode)
        try:
            check_regular(fd)
            os.ftruncate(fd, 0)
            write_all(fd, data)
            os.fchmod(fd, mode)
        finally:
            os.close(fd)
        self.say(number, b"K")

    def on_look(self, number: int) -> None:
        places = self.settings["places"]
        pids = processes() if places else [child.pid for child in self.children.values()]
        true = {name: self.mapped(name) for name in map(os.fsencode, places or ("/work", "/home/agent"))}
        layers = self.settings["changes"].items()
        changes = {os.fsencode(name or "/"): os.fsencode(f"{CHANGES}/{at}") for at, name in layers}
        self.say(number, b"D", overview(pids, true, changes or true))
        self.say(number, b"K")

    def fail(self, number: int, error: Exception) -> None:
        code, text = getattr(error, "errno", 0) or 5, getattr(error, "strerror", "") or str(error)
        self.say(number, b"F", f"{code} {text}".encode(errors="replace"))


def main(take: Callable[[int], bytes]) -> None:
    settings = marshal.loads(take(int.from_bytes(take(4), "big")))
    agent = InsideAgent(settings)
    os.dup2(os.open("/dev/null", os.O_RDWR), 2)
    if settings["way_out"] >= 0:
        open_way_out(settings["way_out"], settings["port"])
    try:
        agent.say(0, b"R")
        lock(settings)  # before the first request, and while the server wakes up
        agent.serve()
    finally:
        agent.leave()  # also when the server has gone with answers unread, which is an error here
