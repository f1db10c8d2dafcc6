"""`ors serve --reload`: the server as a child process, started anew when a file changes."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType

from ors.cli.errors import shown_path
from ors.cli.logging import TextLines
from ors.server.process.lifeline import LIFELINE, tied

__all__ = ["LISTENER", "changed", "seen", "supervise"]

LISTENER = "ORS_SERVE_FD"
"""The environment variable by which the server learns of the socket to serve on."""
POLL_SECONDS = 0.3
AT_ONCE_SECONDS = 5.0
"""A server that is told a second time to end is killed after this."""
Seen = dict[str, tuple[int, int]]
Signals = SimpleQueue[int]
_PASSED_OVER = frozenset({"__pycache__", "node_modules", "site-packages"})


def supervise(roots: Sequence[Path], listener: socket.socket, ending_seconds: float) -> int:
    """Keeps a server running on `listener` until a signal comes; gives the exit code.

    The socket stays open between two servers: whoever connects meanwhile waits, and is not refused. A server
    that has not ended `ending_seconds` after it was told to is killed.
    """
    signals: Signals = SimpleQueue()  # which a handler may put into, whatever it has interrupted

    def on_signal(number: int, frame: FrameType | None) -> None:
        signals.put(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    lines = TextLines(sys.stderr.fileno())  # which never waits for whoever reads them
    going_on = True
    with closing(lines), tied() as lifeline:
        while going_on:
            before = seen(roots)
            server = _started(listener, lifeline)
            going_on = _wait_for_change(server, roots, before, signals, lines)
            going_on = _ended(server, signals, ending_seconds) and going_on
    return 0


def _ended(server: subprocess.Popen[bytes], signals: Signals, seconds: float) -> bool:
    """Ends the server; says whether no further signal came meanwhile."""
    until, further = time.monotonic() + seconds, False
    _tell(server, signal.SIGINT)
    while server.poll() is None:
        if _signalled(signals):
            further = True
            until = min(until, time.monotonic() + AT_ONCE_SECONDS)
            _tell(server, signal.SIGINT)  # a second time means "at once"
        if time.monotonic() > until:
            _tell(server, signal.SIGKILL)
    return not further


def _tell(server: subprocess.Popen[bytes], number: signal.Signals) -> None:
    server.send_signal(number)
    server.send_signal(signal.SIGCONT)  # one that stands still would not hear it


def _started(listener: socket.socket, lifeline: int) -> subprocess.Popen[bytes]:
    number = listener.fileno()
    # A group of its own: Ctrl-C reaches the server once, through us, and not twice, which means "at once".
    return subprocess.Popen(
        [sys.executable, "-m", "ors", *sys.argv[1:]],
        env={**os.environ, LISTENER: str(number), LIFELINE: str(lifeline)},
        pass_fds=[number, lifeline],
        stdin=subprocess.DEVNULL,
        process_group=0,
    )


def _signalled(signals: Signals) -> bool:
    """Waits a moment for a signal; says whether one came."""
    try:
        signals.get(timeout=POLL_SECONDS)
    except Empty:
        return False
    return True


def _wait_for_change(
    server: subprocess.Popen[bytes], roots: Sequence[Path], before: Seen, signals: Signals, lines: TextLines
) -> bool:
    """Says whether a file has changed; otherwise a signal came."""
    told = False
    while not _signalled(signals):
        files = changed(before, seen(roots))
        if files:
            lines.write(f"{shown_path(files[0])} changed: restarting")
            return True
        if server.poll() is not None and not told:
            lines.write("The server has ended; it is started again when a file changes.")
            told = True
    return False


def seen(roots: Sequence[Path]) -> Seen:
    """Every Python file below the roots, with what changes when it does."""
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
    # Paths as text: as objects, looking at them takes nearly three times as long.
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _PASSED_OVER]
        yield from (os.path.join(folder, name) for name in files if name.endswith(".py"))


def changed(before: Seen, now: Seen) -> list[str]:
    """The files that are new, gone or different."""
    return sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))
