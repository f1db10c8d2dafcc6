"""Child processes of `ors serve`: how they are started, and restarted when a file changes."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any

from ors import Environment, Server, ToolOutput, tool
from ors.cli.errors import shown_path
from ors.cli.output.logging import TextLines
from ors.errors import Unavailable
from ors.server.http.answers import Answer, refusal
from ors.server.http.requests import Request
from ors.server.process.runner import Runner
from ors.server.process.system import LIFELINE, tied

POLL_SECONDS = 0.3
AT_ONCE_SECONDS = 5.0
"""A server that gets a second signal is killed after this time."""
Seen = dict[str, tuple[int, int]]
Signals = SimpleQueue[int]
_PASSED_OVER = frozenset({"__pycache__", "node_modules", "site-packages"})


def supervise(
    roots: Sequence[Path], listener: socket.socket, keys: Sequence[str], ending_seconds: float
) -> int:
    """Keeps a server running until a signal arrives, and restarts it when a file in `roots` changes.

    It is killed if it takes longer than `ending_seconds` to stop. Returns the exit code.

    The socket stays open between two servers, so clients that connect meanwhile wait and are not refused.
    After a server that has ended by itself comes one that answers 503, until a file changes.
    """
    signals: Signals = SimpleQueue()  # safe to use in a signal handler

    def on_signal(number: int, frame: FrameType | None) -> None:
        signals.put(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    lines = TextLines(sys.stderr.fileno())  # never blocks, even if nobody reads the lines
    before, down = seen(roots), False
    with closing(lines), tied() as lifeline:
        while True:
            variables = {LISTENER: str(listener.fileno()), LIFELINE: str(lifeline), DOWN: str(int(down))}
            server = started(variables, [listener.fileno(), lifeline], keys)
            files = _wait(None if down else server, roots, before, signals)
            if files:
                lines.write(f"{shown_path(files[0])} changed: restarting")
            elif files is not None:
                lines.write("The server has stopped. It starts again when a file changes.")
            if not _ended(server, signals, ending_seconds) or files is None:
                return 0
            down = not files
            before = before if down else seen(roots)


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
    return sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))


LISTENER = "ORS_SERVE_FD"
"""Environment variable with the descriptor of the socket to serve on."""
DOWN = "ORS_SERVE_DOWN"
"""Environment variable that says that the environments cannot be served."""


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


class _Nothing(Environment):
    """Stands for environments that cannot be served."""

    tasks = {"none": []}

    def get_prompt(self) -> str:
        return ""

    @tool
    async def nothing(self) -> ToolOutput:
        """Does nothing."""
        return ToolOutput(blocks=[])


class _Refusals:
    """Answers in the place of peers, after the checks of host, origin and key."""

    def elsewhere(self, request: Request) -> Answer:
        return refusal(Unavailable("The server is not running; its log says why", retry_after=1))

    def new_session_id(self) -> str:
        raise NotImplementedError


def refusing(host: str, port: int, insecure: bool, certificate: dict[str, Any], **how: Any) -> Runner:
    """A server that answers 503 to every client it accepts. The reason is only in its log."""
    server = Server([_Nothing], **how)
    server._guard(host, insecure)
    server._app.peers = _Refusals()
    # Without links: a router must not use it.
    return Runner(server._app, host, port, **certificate, parts=[server._app])
