"""A program that the agent has started, and its pipes. The agent runs this text too."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

KILL = 9
REPORT = b"S"
"""The stream of descriptor 3, where a program has one."""
LOADER = b"/tmp/.ors-loader"


class Child:
    def __init__(self, number: int, pid: int, fds: list[int], deadline: float, most: int) -> None:
        self.number = number
        self.pid = pid
        self.stdin = fds[0]
        self.outputs = {fd: (b"O", b"E", REPORT)[at] for at, fd in enumerate(fds[1:])}
        self.pending: list[memoryview] = []
        self.eof = False
        self.unread = 0
        self.room = {fds[1]: most, fds[2]: most} if most else None
        self.deadline = deadline
        self.limit = ""
        self.stopped = False
        self.status: int | None = None

    def stop(self, limit: str) -> None:
        self.limit, self.stopped = self.limit or limit, True
        try:
            os.killpg(self.pid, KILL)
        except OSError:
            return

    def bounded(self, fd: int, data: bytes) -> bytes:
        """Cuts output at its limit, and stops the program there."""
        if self.room is None:
            return data
        if len(data) > self.room[fd]:
            data = data[: self.room[fd]]
            self.stop("output")
        self.room[fd] -= len(data)
        return data

    def feed(self) -> int:
        """Writes to the program's input; returns how many of the pending bytes are through."""
        taken = 0
        try:
            while self.pending:
                size = os.write(self.stdin, self.pending[0])
                taken += size
                if size == len(self.pending[0]):
                    del self.pending[0]
                else:
                    self.pending[0] = self.pending[0][size:]
        except BlockingIOError:
            pass
        except OSError:
            taken += sum(map(len, self.pending))
            self.pending, self.eof = [], True
        if not self.pending and self.eof:
            self.close_stdin()
        return taken

    def close_stdin(self) -> None:
        if self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1


def pipes(devnull: bool, reports: bool) -> tuple[list[int], list[int]]:
    """Three or four pipes: the ends of the program, and those of the agent, which never block."""
    theirs, ours = [], []
    if devnull:
        theirs.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
        ours.append(-1)
    for write in (False, True, True, True)[devnull : 3 + reports]:
        pair = os.pipe2(os.O_CLOEXEC)
        theirs.append(pair[write])
        ours.append(pair[not write])
        os.set_blocking(pair[not write], False)
    return theirs, ours


def check_regular(fd: int) -> None:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise OSError(22, "Not a regular file")


def widen(fd: int) -> None:
    """Lets a pipe hold more, so that the two ends take turns less often."""
    import fcntl

    try:
        fcntl.fcntl(fd, 1031, 1 << 20)  # F_SETPIPE_SZ
    except OSError:
        return  # no pipe, or too many wide ones


def found(program: bytes, path: bytes) -> bytes:
    if b"/" in program:
        return program
    for folder in path.split(b":"):
        candidate = os.path.join(folder, program)
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    raise FileNotFoundError(2, "command not found")


def concealed(path: bytes, argv: list[bytes]) -> tuple[bytes, list[bytes]]:
    """Program and arguments for a judge in Python whose memory and descriptors its children cannot open.

    The kernel hides a process whose loader its user may not read. Whoever starts it removes the copy.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(4096)
        at = head.find(b"/ld-")
        if at < 0 or not os.path.basename(path).startswith(b"python"):
            return path, argv
        with open(head[head.rfind(b"\0", 0, at) + 1 : head.find(b"\0", at)], "rb") as file:
            content = file.read()
        with open(LOADER, "wb") as file:
            file.write(content)
        os.chmod(LOADER, 0o111)
    except OSError:
        return path, argv
    return LOADER, [LOADER, path, *argv[1:]]


def spawned(argv: list[bytes], env: dict[bytes, bytes], fds: list[int], reset: list[int], judge: bool) -> int:
    """Starts a program in a session of its own, as the real user, with signals as they are by default."""
    argv = direct(argv) if judge else argv
    path = found(argv[0], env.get(b"PATH", b"/usr/bin:/bin"))
    program, argv = concealed(path, argv) if judge else (path, argv)
    moves = [(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate(fds)]
    try:
        return os.posix_spawn(
            program, argv, env, file_actions=moves, setsid=True, setsigdef=reset, resetids=True
        )
    finally:
        if program != path:
            os.unlink(program)


def forked(fds: list[int], work: Callable[[], object]) -> int:
    """Runs a function of the agent in a process of its own."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        for target, fd in enumerate(fds):
            os.dup2(fd, target)
        os.closerange(3, 4096)
        widen(0)
        widen(1)
        work()
        code = 0
    except OSError as error:
        os.write(2, b"%d %b" % (error.errno or 5, (error.strerror or str(error)).encode()))
    finally:
        os._exit(code)


def direct(argv: list[bytes]) -> list[bytes]:
    """The words of a command for the shell that needs none, so that the agent starts the program itself."""
    words = argv[2].split() if argv[:2] == [b"/bin/sh", b"-c"] else []
    simple = argv[-1].translate(None, b"./_- ").isalnum() and words and words[0].startswith(b"python")
    return words if simple else argv
