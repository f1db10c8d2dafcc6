"""Child processes: a TARGET served while a block runs, and `ors serve`, restarted when a file changes."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue

import click

from ors.cli.errors import shown_path
from ors.cli.output.logging import TextLines
from ors.cli.settings import erase_secrets
from ors.cli.targets.connect import greet
from ors.cli.targets.resolve import as_url, given_settings, words
from ors.server.process.system import LIFELINE, tied

STOP_SECONDS = 15.0
SETTINGS = {
    "ORS_API_KEYS": "",
    "ORS_SERVE_LOG_LEVEL": "critical",
    "ORS_SERVE_RECORD": "",
    "ORS_SERVE_RELOAD": "0",
}


@contextmanager
def served(*targets: str, variant: Sequence[str] | None = None, **variables: str) -> Iterator[str]:
    """Serves targets while the block runs; yields the URL. The child prints its own errors.

    `variant` is what `words` returns; by default, for what `--set` says.
    """
    targets = (*targets, *(words(given_settings()) if variant is None else variant))
    erase_secrets()
    with tied() as lifeline:
        process = subprocess.Popen(
            [sys.executable, "-m", "ors", "serve", *targets, "--port", "0", "--host", "127.0.0.1", "--json"],
            env={**os.environ, **SETTINGS, **variables, LIFELINE: str(lifeline)},
            pass_fds=[lifeline],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C must not stop the server before we are done
        )
        assert process.stdout is not None
        with process.stdout:
            try:
                line = process.stdout.readline()
                if not line:
                    raise click.exceptions.Exit(process.wait() or 3)
                yield json.loads(line)["url"]
            finally:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(STOP_SECONDS)
                process.kill()
                process.wait()


@contextmanager
def reached(*targets: str, api_key: str | None, variant: Sequence[str] | None = None) -> Iterator[str]:
    """The URL of a server that answers: the only target, or one that serves the targets meanwhile."""
    with ExitStack() as stack:
        url = as_url(targets[0]) or stack.enter_context(served(*targets, variant=variant))
        greet(url, api_key)
        yield url


POLL_SECONDS = 0.3
AT_ONCE_SECONDS = 5.0
"""A server that gets a second signal is killed after this time."""
Seen = dict[str, tuple[int, int]]
Signals = SimpleQueue[int]
_PASSED_OVER = frozenset({"__pycache__", "node_modules", "site-packages"})


def supervise(
    roots: Sequence[Path],
    listen: Callable[[int], socket.socket],
    port: int,
    keys: Sequence[str],
    ending_seconds: float,
) -> int:
    """Keeps a server running until a signal arrives, and restarts it when a file in `roots` changes.

    It is killed if it takes longer than `ending_seconds` to stop. Returns the exit code.

    The socket stays open during a restart, so clients that connect meanwhile wait and are not refused. After
    a server has ended by itself, they are refused until a file changes.
    """
    signals: Signals = SimpleQueue()  # safe to use in a signal handler

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: signals.put(number))
    lines = TextLines(sys.stderr.fileno())  # never blocks, even if nobody reads the lines
    listener = listen(port)
    port = listener.getsockname()[1]
    with closing(lines), tied() as lifeline:
        while True:
            before = seen(roots)
            variables = {LISTENER: str(listener.fileno()), LIFELINE: str(lifeline)}
            server = started(variables, [listener.fileno(), lifeline], keys)
            files = _wait(server, roots, before, signals)
            if files == []:
                listener.close()
                lines.write("The server has stopped. It starts again when a file changes.")
                files = _wait(None, roots, before, signals)
                listener = listen(port) if files else listener
            if files:
                lines.write(f"{shown_path(files[0])} changed: restarting")
            if not _stopped(server, signals, ending_seconds) or not files:
                return 0


def _stopped(server: subprocess.Popen[bytes], signals: Signals, seconds: float) -> bool:
    """Stops the server; returns whether no further signal arrived meanwhile."""
    until, further = time.monotonic() + seconds, False
    server.send_signal(signal.SIGINT)
    server.send_signal(signal.SIGCONT)  # a stopped process would not handle it
    while server.poll() is None:
        if _signalled(signals):
            further = True
            until = min(until, time.monotonic() + AT_ONCE_SECONDS)
            server.send_signal(signal.SIGINT)  # a second signal means "stop now"
        if time.monotonic() > until:
            server.kill()
    return not further


def _signalled(signals: Signals) -> bool:
    with suppress(Empty):
        signals.get(timeout=POLL_SECONDS)
        return True
    return False


def _wait(
    server: subprocess.Popen[bytes] | None, roots: Sequence[Path], before: Seen, signals: Signals
) -> list[str] | None:
    """Waits for changed files, which it returns, or for the end of a server; None after a signal."""
    while not _signalled(signals):
        now = seen(roots)
        files = sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))
        if files or (server is not None and server.poll() is not None):
            return files
    return None


def seen(roots: Sequence[Path]) -> Seen:
    """The Python files below some folders, each with its time and size."""
    found: Seen = {}
    for root in roots:
        # Paths as text: with Path objects, a scan takes nearly three times as long.
        for folder, folders, files in os.walk(root):
            folders[:] = [name for name in folders if not name.startswith(".") and name not in _PASSED_OVER]
            for path in (os.path.join(folder, name) for name in files if name.endswith(".py")):
                with suppress(OSError):
                    status = os.stat(path)
                    found[path] = (status.st_mtime_ns, status.st_size)
    return found


LISTENER = "ORS_SERVE_FD"
"""Environment variable with the descriptor of the socket to serve on."""


def started(
    variables: Mapping[str, str],
    descriptors: Sequence[int],
    keys: Sequence[str],
    stdout: int | None = None,
    within: Sequence[str] = (),
) -> "subprocess.Popen[bytes]":
    """Runs this command once more, as a child, which takes over what `Inherited` names. `within` is a command
    that takes another as its arguments.

    Not by `os.fork`: other threads may hold locks, for which a copy would wait for ever. The API keys go
    through a pipe: programs that a tool starts could read them in the environment.
    """
    child = subprocess.Popen(
        [*within, sys.executable, "-m", "ors", *sys.argv[1:]],
        env={**os.environ, **variables},
        pass_fds=descriptors,
        stdin=subprocess.PIPE,
        stdout=stdout,
        process_group=0,  # Ctrl-C reaches it through its parent: twice would mean "stop now"
    )
    assert child.stdin is not None
    with suppress(BrokenPipeError), child.stdin:
        child.stdin.write("\n".join(keys).encode())
    return child
