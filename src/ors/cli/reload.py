"""`ors serve --reload`: runs the server as a child process and restarts it when a file changes."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType

import click

from ors.cli.errors import shown_path
from ors.cli.output.logging import TextLines
from ors.cli.refusals import Refusing
from ors.errors import StartupFailed
from ors.server.process.lifeline import LIFELINE, tied

LISTENER = "ORS_SERVE_FD"
"""Environment variable with the descriptor of the socket to serve on."""
FAILURE = "ORS_SERVE_FAILURE"
"""Environment variable with the descriptor of the pipe for the reason why a server cannot start."""
MOST_FAILURE_BYTES = 4000
"""A pipe takes this much without a reader."""
POLL_SECONDS = 0.3
AT_ONCE_SECONDS = 5.0
"""A server that gets a second signal is killed after this time."""
Seen = dict[str, tuple[int, int]]
Signals = SimpleQueue[int]
_PASSED_OVER = frozenset({"__pycache__", "node_modules", "site-packages"})


@dataclass(frozen=True)
class Reloaded:
    """Everything about what is served: the folders to watch, the socket, and how servers end.

    `ending_seconds` is how long a server may take to stop before it is killed.
    """

    roots: Sequence[Path]
    listener: socket.socket
    ending_seconds: float
    refusing: Refusing


def supervise(what: Reloaded) -> int:
    """Keeps a server running until a signal arrives; returns the exit code.

    The socket stays open between two servers, so clients that connect meanwhile wait and are not refused.
    While the code cannot be served, they are answered 503 at once.
    """
    signals: Signals = SimpleQueue()  # safe to use in a signal handler

    def on_signal(number: int, frame: FrameType | None) -> None:
        signals.put(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    lines = TextLines(sys.stderr.fileno())  # never blocks, even if nobody reads the lines
    going_on = True
    with closing(lines), tied() as lifeline:
        while going_on:
            before = seen(what.roots)
            with _failures() as (failures, failure):
                server = _started(what.listener, lifeline, failure)
                going_on = _wait_for_change(server, what, before, signals, lines, failures)
                going_on = _ended(server, signals, what.ending_seconds) and going_on
    return 0


def _ended(server: subprocess.Popen[bytes], signals: Signals, seconds: float) -> bool:
    """Stops the server; returns whether no further signal arrived meanwhile."""
    until, further = time.monotonic() + seconds, False
    _tell(server, signal.SIGINT)
    while server.poll() is None:
        if _signalled(signals):
            further = True
            until = min(until, time.monotonic() + AT_ONCE_SECONDS)
            _tell(server, signal.SIGINT)  # a second signal means "stop now"
        if time.monotonic() > until:
            _tell(server, signal.SIGKILL)
    return not further


def _tell(server: subprocess.Popen[bytes], number: signal.Signals) -> None:
    server.send_signal(number)
    server.send_signal(signal.SIGCONT)  # a stopped process would not handle it


@contextmanager
def _failures() -> Iterator[tuple[int, int]]:
    """A pipe for the reason why a server cannot start."""
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    try:
        yield ours, theirs
    finally:
        os.close(ours)
        os.close(theirs)


@contextmanager
def telling(failure: int | None) -> Iterator[None]:
    """Writes to that descriptor why the block fails."""
    try:
        yield
    except (click.ClickException, StartupFailed) as error:
        if failure is not None:
            text = error.message if isinstance(error, click.ClickException) else str(error)
            os.write(failure, text.encode()[:MOST_FAILURE_BYTES])
        raise


def _started(listener: socket.socket, lifeline: int, failure: int) -> subprocess.Popen[bytes]:
    number = listener.fileno()
    # In its own process group, Ctrl-C reaches the server once, through us; twice would mean "stop now".
    return subprocess.Popen(
        [sys.executable, "-m", "ors", *sys.argv[1:]],
        env={**os.environ, LISTENER: str(number), LIFELINE: str(lifeline), FAILURE: str(failure)},
        pass_fds=[number, lifeline, failure],
        stdin=subprocess.DEVNULL,
        process_group=0,
    )


def _signalled(signals: Signals) -> bool:
    """Waits briefly for a signal; returns whether one arrived."""
    try:
        signals.get(timeout=POLL_SECONDS)
    except Empty:
        return False
    return True


def _wait_for_change(
    server: subprocess.Popen[bytes],
    what: Reloaded,
    before: Seen,
    signals: Signals,
    lines: TextLines,
    failures: int,
) -> bool:
    """Waits for a changed file or a signal; returns whether it was a file."""
    with ExitStack() as down:
        reported = False
        while not _signalled(signals):
            files = changed(before, seen(what.roots))
            if files:
                lines.write(f"{shown_path(files[0])} changed: restarting")
                return True
            if server.poll() is not None and not reported:
                lines.write("The server has stopped. It starts again when a file changes.")
                down.enter_context(what.refusing.on(what.listener, _why(failures)))
                reported = True
    return False


def _why(failures: int) -> str:
    try:
        return os.read(failures, MOST_FAILURE_BYTES).decode(errors="replace")
    except BlockingIOError:
        return ""


def seen(roots: Sequence[Path]) -> Seen:
    """Modification time and size of every Python file below the roots."""
    found: Seen = {}
    for root in roots:
        for path in _files(root):
            try:
                status = os.stat(path)
            except OSError:
                continue
            found[path] = (status.st_mtime_ns, status.st_size)
    return found


def _files(root: Path) -> Iterator[str]:
    # Paths as text: with Path objects, a scan takes nearly three times as long.
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _PASSED_OVER]
        yield from (os.path.join(folder, name) for name in files if name.endswith(".py"))


def changed(before: Seen, now: Seen) -> list[str]:
    """Files that are new, deleted or different."""
    return sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))
