"""The servers of the comparison, each a process on the server's core."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

from bench import machine, reference

Subject = Literal["ours", "floor", "reference"]
SUBJECTS: tuple[Subject, ...] = ("ours", "floor", "reference")
ROOT = Path(__file__).parents[1]
START_SECONDS = 30.0


class Process:
    """A server that runs. `started_in` is the time from its start to its first answer."""

    def __init__(self, subject: Subject, tree: Path = ROOT) -> None:
        self.subject = subject
        self.port = _free_port()
        began = time.perf_counter()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the process)
        with machine.pinned(machine.cores()[0]):
            # stdout goes where nobody reads it: the reference logs every request, and a pipe would fill.
            self._process = subprocess.Popen(
                self.command(),
                cwd=tree,
                env=_environment(tree),
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
            )
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise
        self.started_in = time.perf_counter() - began

    def command(self) -> list[str]:
        kind = "floor" if self.subject == "floor" else "ors"
        return [*python_of(self.subject), "-m", "bench.serve", kind, str(self.port)]

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        """Ends it, with its sessions."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def _wait(self) -> None:
        deadline = time.perf_counter() + START_SECONDS
        while not self._healthy():
            if self._process.poll() is not None or time.perf_counter() > deadline:
                self._errors.seek(0)
                said = self._errors.read().decode().strip()[-500:]
                raise RuntimeError(f"the server {self.subject!r} does not start: {said}")
            time.sleep(0.002)

    def _healthy(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()


@contextmanager
def running(*subjects: Subject) -> Iterator[list[Process]]:
    """These servers, side by side, for as long as the block lasts."""
    with ExitStack() as stack:
        processes = []
        for subject in subjects:
            process = Process(subject)
            stack.callback(process.stop)
            processes.append(process)
        yield processes


def python_of(subject: Subject) -> list[str]:
    """The Python that has this subject's package."""
    return reference.python() if subject == "reference" else [sys.executable]


def _environment(tree: Path) -> dict[str, str]:
    # The installed package is that of ROOT, and the reference's Python has its own.
    return {**os.environ, "PYTHONPATH": str(tree / "src")} if tree != ROOT else dict(os.environ)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
