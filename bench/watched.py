"""A server in a process of its own, watched from outside and from within.

Run as a module it is that process: `python -m bench.watched '{"idle_seconds": 5}'`.
"""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from bench import machine
from bench.rough import Census, Rough
from ors import Limits, Server
from ors.client import AsyncORS, Task
from ors.server.sessions import registry

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Left:
    """What a server's process holds at one moment."""

    sessions: int
    tasks: int
    threads: int
    lost: int
    descriptors: int
    running: int
    ran: int
    ran_again: int
    megabytes: float

    def beyond(self, before: "Left") -> dict[str, int]:
        """What there is more of than there was before; threads that are counted as lost are no surprise."""
        more = {
            "sessions": self.sessions - before.sessions,
            "tasks": self.tasks - before.tasks,
            "threads": self.threads - self.lost - before.threads,
            "descriptors": self.descriptors - before.descriptors,
            "running calls": self.running - before.running,
        }
        return {what: count for what, count in more.items() if count > 0}


class Watched:
    """The process, and what it tells."""

    def __init__(self, process: "subprocess.Popen[str]", url: str, errors: Any) -> None:
        self.process = process
        self.url = url
        self.port = int(url.rpartition(":")[2])
        self._errors = errors

    @property
    def megabytes(self) -> float:
        """Memory that it holds."""
        return machine.resident_bytes(self.process.pid) / 2**20

    @property
    def cpu_seconds(self) -> float:
        """CPU time that it has used."""
        return machine.cpu_seconds(self.process.pid)

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def errors(self) -> str:
        """What it has logged so far."""
        self._errors.seek(0)
        text: str = self._errors.read().decode(errors="replace")
        return text

    async def metrics(self) -> dict[tuple[str, ...], float]:
        """Every sample of its metrics by name and values of labels, in the order of the labels' names."""
        async with aiohttp.ClientSession() as http, http.get(f"{self.url}/-/metrics") as answer:
            text = await answer.text()
        return {
            (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    async def settled(self, before: Left, seconds: float) -> Left:
        """What it holds once there is no more than before, or after so many seconds."""
        deadline = time.monotonic() + seconds
        while True:
            left = await self.left()
            if not left.beyond(before) or time.monotonic() > deadline:
                return left
            await asyncio.sleep(1)

    async def left(self) -> Left:
        """What it holds now, apart from what asking needs."""
        async with AsyncORS(self.url) as client:
            async with client.environment("census").session(Task("census", {})) as session:
                told = (await session.call_tool("count", {})).metadata
            found = await self.metrics()
        assert isinstance(told, dict)
        sessions = sum(value for key, value in found.items() if key[0] == "ors_sessions")
        return Left(
            sessions=round(sessions),
            lost=round(found["ors_threads_lost",]),
            running=round(found["ors_calls_running",]),
            megabytes=self.megabytes,
            **told,
        )


@contextmanager
def watched(
    limits: dict[str, Any], *, core: int | None = None, log_level: str = "WARNING", port: int = 0
) -> Iterator[Watched]:
    """A server with these limits, for as long as the block lasts."""
    with tempfile.TemporaryFile() as errors:
        with machine.pinned(core) if core is not None else _anywhere():
            process = subprocess.Popen(
                [sys.executable, "-m", "bench.watched", json.dumps(limits), log_level, str(port)],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert process.stdout is not None
        try:
            yield Watched(process, process.stdout.readline().strip(), errors)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()


@contextmanager
def _anywhere() -> Iterator[None]:
    yield


def main() -> None:
    """Serves until it is told to stop."""
    logging.basicConfig(level=sys.argv[2])
    machine.allow_many_files()
    vars(registry)["TOMBSTONES"] = 1000  # they come to an end within a short run, so that growth is a leak
    server = Server([Rough, Census], limits=Limits(**json.loads(sys.argv[1])))
    server.runner(port=int(sys.argv[3]), on_start=_tell).run()


def _tell(url: str) -> None:
    os.write(1, f"{url}\n".encode())


if __name__ == "__main__":
    main()
