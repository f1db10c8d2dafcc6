"""`ors serve --reload`: runs the server as a child process and restarts it when a file changes."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType

from ors.cli.errors import shown_path
from ors.cli.options.inherited import DOWN, LISTENER, started
from ors.cli.output.logging import TextLines
from ors.server.process.lifeline import LIFELINE, tied

POLL_SECONDS = 0.3
AT_ONCE_SECONDS = 5.0
"""A server that gets a second signal is killed after this time."""
Seen = dict[str, tuple[int, int]]
Signals = SimpleQueue[int]
_PASSED_OVER = frozenset({"__pycache__", "node_modules", "site-packages"})


@dataclass(frozen=True)
class Reloaded:
    """What is served: the folders to watch, the socket, and the API keys.

    `ending_seconds` is how long a server may take to stop before it is killed.
    """

    roots: Sequence[Path]
    listener: socket.socket
    keys: Sequence[str]
    ending_seconds: float


def supervise(what: Reloaded) -> int:
    """Keeps a server running until a signal arrives; returns the exit code.

    The socket stays open between two servers, so clients that connect meanwhile wait and are not refused.
    After a server that has ended by itself comes one that answers 503, until a file changes.
    """
    signals: Signals = SimpleQueue()  # safe to use in a signal handler

    def on_signal(number: int, frame: FrameType | None) -> None:
        signals.put(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    lines = TextLines(sys.stderr.fileno())  # never blocks, even if nobody reads the lines
    before, down = seen(what.roots), False
    with closing(lines), tied() as lifeline:
        while True:
            server = _started(what, lifeline, down)
            files = _wait(None if down else server, what.roots, before, signals)
            if files:
                lines.write(f"{shown_path(files[0])} changed: restarting")
            elif files is not None:
                lines.write("The server has stopped. It starts again when a file changes.")
            if not _ended(server, signals, what.ending_seconds) or files is None:
                return 0
            down = not files
            before = before if down else seen(what.roots)


def _started(what: Reloaded, lifeline: int, down: bool) -> subprocess.Popen[bytes]:
    number = what.listener.fileno()
    variables = {LISTENER: str(number), LIFELINE: str(lifeline), DOWN: str(int(down))}
    return started(variables, [number, lifeline], what.keys)


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


def _signalled(signals: Signals) -> bool:
    """Waits briefly for a signal; returns whether one arrived."""
    try:
        signals.get(timeout=POLL_SECONDS)
    except Empty:
        return False
    return True


def _wait(
    server: subprocess.Popen[bytes] | None, roots: Sequence[Path], before: Seen, signals: Signals
) -> list[str] | None:
    """Waits for changed files, which it returns, or for the end of a server; None after a signal."""
    while not _signalled(signals):
        files = changed(before, seen(roots))
        if files or (server is not None and server.poll() is not None):
            return files
    return None


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
