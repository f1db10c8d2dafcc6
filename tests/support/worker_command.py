"""Runs `ors serve --workers` as a user does."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support import SUPPORT
from tests.support.commands import ORS, PATIENCE, variables
from tests.support.raw_http import Raw
from tests.support.waiting import wait_until, written

YARD = f"{SUPPORT / 'traced_environment.py'}:Yard"


class Crew:
    """A supervisor with its workers."""

    def __init__(self, process: subprocess.Popen[str], folder: Path, workers: int) -> None:
        self.process = process
        self._folder = folder
        self.url = self.line(r"Serving on (http://\S+)")
        self.raw = Raw(self.url)
        self.until(lambda: len(self.slots()) == workers)  # they know each other a moment later

    def line(self, pattern: str) -> str:
        """Returns the next line of its output that matches."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.search(pattern, line):
                return found[1] if found.groups() else found[0]
        raise AssertionError(f"it ended without {pattern!r}")

    def traces(self) -> list[str]:
        """Returns the traces that tools have written."""
        return lines(self._folder / "traces")

    def said(self, pattern: str) -> list[str]:
        """Returns all matches in its standard error."""
        return re.findall(pattern, (self._folder / "errors").read_text())

    def pids(self) -> list[int]:
        """Returns the process ids of the workers that are up, by slot."""
        found = []
        for slot in sorted(self.slots()):
            sid = self.session(slot)
            found.append(int(self.told(sid, "note", name="pid")))
            self.raw.post("/delete", sid=sid)
        return found

    def told(self, sid: str, tool: str, **given: object) -> str:
        """Calls a tool and returns its text."""
        output = self.raw.call(sid, tool, given, env="yard").result()["output"]
        return str(output["blocks"][0]["text"])

    def living(self) -> list[int]:
        """Returns the process ids of all workers, from /proc."""
        pid = self.process.pid
        found = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return found or self.living()

    def slots(self) -> set[int]:
        """Returns the slots whose worker is up."""
        text = self.raw.get("/-/metrics").body.decode()
        return {int(slot) for slot in re.findall(r'ors_calls_running\{server="(\d+)"\}', text)}

    def session(self, slot: int | None = None) -> str:
        """Creates a session, on the worker of a slot if one is given."""
        others = []
        while True:
            sid = str(self.raw.post("/create_session").json()["sid"])
            made = self.raw.post("/create", {"task_spec": {}}, sid=sid)
            assert made.status == 200, made
            if slot is None or int(sid[:4], 16) == slot:
                break
            others.append(sid)
        for other in others:
            self.raw.post("/delete", sid=other)
        return sid

    def until(self, what: Callable[[], bool]) -> None:
        """Waits until `what()` is true, sending requests meanwhile."""

        def holds() -> bool:
            with suppress(OSError):  # a worker that is killed takes its connections with it
                self.raw.get("/health")
            return what()

        wait_until(holds, written(what))

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


@contextmanager
def crew(folder: Path, workers: int, *words: str, command: Sequence[str] = ORS) -> Iterator[Crew]:
    """Runs workers until the block ends."""
    with (folder / "errors").open("w") as errors:
        process = subprocess.Popen(
            [
                *command,
                "serve",
                YARD,
                "--workers",
                str(workers),
                "--port",
                "0",
                "--log-level",
                "error",
                *words,
            ],
            env=variables(
                {
                    "YARD": str(folder / "traces"),
                    "PYTHONUNBUFFERED": "1",
                }
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdout is not None
    try:
        yield Crew(process, folder, workers)
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(PATIENCE)
        process.stdout.close()
        sys.stderr.write((folder / "errors").read_text())


def lines(file: Path) -> list[str]:
    """Returns the words of a file; none if there is no file."""
    return file.read_text().split() if file.exists() else []


def alive(pid: int) -> bool:
    """Whether a process exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
