"""`ors serve --reload`: the server as a child process, started anew when a file changes."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType

import click

from ors.cli.faults import shown_path

__all__ = ["changed", "inherited", "seen", "supervise"]

POLL_SECONDS = 0.3
Seen = dict[str, tuple[int, int]]
Signals = SimpleQueue[int]
_PASSED_OVER = frozenset({"__pycache__", "node_modules", "site-packages"})


def supervise(roots: Sequence[Path], listener: socket.socket) -> int:
    """Keeps a server running on `listener` until a signal comes; gives the exit code.

    The socket stays open between two servers: whoever connects meanwhile waits, and is not refused.
    """
    signals: Signals = SimpleQueue()  # which a handler may put into, whatever it has interrupted

    def on_signal(number: int, frame: FrameType | None) -> None:
        signals.put(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    going_on = True
    while going_on:
        before = seen(roots)
        server = _started(listener)
        going_on = _wait_for_change(server, roots, before, signals)
        server.send_signal(signal.SIGINT)
        while server.poll() is None:
            if _signalled(signals):
                going_on = False
                server.send_signal(signal.SIGINT)  # a second time means "at once"
    return 0


def _started(listener: socket.socket) -> subprocess.Popen[bytes]:
    number = listener.fileno()
    # A group of its own: Ctrl-C reaches the server once, through us, and not twice, which means "at once".
    return subprocess.Popen(
        [sys.executable, "-m", "ors", *sys.argv[1:]],
        env={**os.environ, "ORS_SERVE_FD": str(number)},
        pass_fds=[number],
        stdin=subprocess.PIPE,
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
    server: subprocess.Popen[bytes], roots: Sequence[Path], before: Seen, signals: Signals
) -> bool:
    """Says whether a file has changed; otherwise a signal came."""
    told = False
    while not _signalled(signals):
        files = changed(before, seen(roots))
        if files:
            click.echo(f"{shown_path(files[0])} changed: restarting", err=True)
            return True
        if server.poll() is not None and not told:
            click.echo("The server has ended; it is started again when a file changes.", err=True)
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


def inherited(number: int) -> socket.socket:
    """The socket that `supervise` handed down. When the supervisor is gone, this process ends too."""

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 1024):
            continue
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
    return socket.socket(fileno=number)
