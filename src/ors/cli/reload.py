"""`ors serve --reload`: the server as a child process, started anew when a file changes."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

import click

from ors.cli.faults import shown_path

__all__ = ["changed", "inherited", "seen", "supervise"]

POLL_SECONDS = 0.3
Seen = dict[Path, tuple[int, int]]


def supervise(roots: Sequence[Path], listener: socket.socket) -> int:
    """Keeps a server running on `listener` until a signal comes; gives the exit code.

    The socket stays open between two servers: whoever connects meanwhile waits, and is not refused.
    """
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    while not stop.is_set():
        before = seen(roots)
        server = _started(listener)
        _wait_for_change(server, roots, before, stop)
        server.terminate()
        server.wait()
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


def _wait_for_change(
    server: subprocess.Popen[bytes], roots: Sequence[Path], before: Seen, stop: threading.Event
) -> None:
    told = False
    while not stop.wait(POLL_SECONDS):
        files = changed(before, seen(roots))
        if files:
            click.echo(f"{shown_path(files[0])} changed: restarting", err=True)
            return
        if server.poll() is not None and not told:
            click.echo("The server has ended; it is started again when a file changes.", err=True)
            told = True


def seen(roots: Sequence[Path]) -> Seen:
    """Every Python file below the roots, with what changes when it does."""
    found: Seen = {}
    for root in roots:
        for path in _files(root):
            try:
                status = path.stat()
            except OSError:
                continue
            found[path] = (status.st_mtime_ns, status.st_size)
    return found


def _files(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and name not in ("__pycache__", "node_modules", "site-packages")
        ]
        yield from (Path(folder, name) for name in files if name.endswith(".py"))


def changed(before: Seen, now: Seen) -> list[Path]:
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
