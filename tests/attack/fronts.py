"""The front ends under attack, each in processes of its own: server, workers, router, ASGI under uvicorn."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.commands import ORS, PATIENCE, variables
from tests.support.raw_http import Raw

ROOT = Path(__file__).parents[2]
GROUND = str(Path(__file__).with_name("ground.py"))
ALONE = f"{GROUND}:Ground"
"""One environment: paths that it does not know are redirected below it."""
WORKERS = 2
KEY = "sesame"
ORIGIN = "https://friend.example"
TOO_MANY_MB = 2000
"""At this size it is watched no longer: the machine is not to suffer."""
NAMES = ("server", "workers", "router", "asgi")


@dataclass
class Front:
    """One front end, and what can be seen of it from outside."""

    name: str
    url: str
    processes: list["subprocess.Popen[bytes]"]
    logs: list[Path]
    traces: Path
    key: str = ""
    sids: list[str] = field(default_factory=list)
    """Live sessions; behind workers, one on each."""
    at_first: float = 0.0
    """Megabytes when it was up."""

    @property
    def raw(self) -> Raw:
        return Raw(self.url)

    @property
    def headers(self) -> dict[str, str]:
        return {"X-API-Key": self.key} if self.key else {}

    @property
    def alive(self) -> bool:
        return all(process.poll() is None for process in self.processes)

    @property
    def megabytes(self) -> float:
        """Memory of the front end's own processes, the server behind a router not counted."""
        return sum(_resident(pid) for pid in family(self.processes[-1].pid)) / 2**20

    def grown(self, seconds: float) -> float:
        """The most megabytes beyond the first, over so many seconds."""
        most = 0.0

        def looked() -> bool:
            nonlocal most
            most = max(most, self.megabytes)
            return most > TOO_MANY_MB

        until(looked, seconds)
        return most - self.at_first

    def log(self) -> str:
        return "".join(file.read_text(errors="replace") for file in self.logs)

    def ran(self) -> list[str]:
        """The traces of tools."""
        return self.traces.read_text().split() if self.traces.exists() else []

    def session(self, slot: int | None = None) -> str:
        """A new session, on the worker of that slot if it matters."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            sid = str(self.raw.post("/create_session", headers=self.headers).json()["sid"])
            if slot is None or int(sid[:4], 16) == slot:
                body = {"env_name": "ground", "task_spec": {}}
                answer = self.raw.post("/create", body, sid=sid, headers=self.headers)
                assert answer.status == 200, answer
                return sid
        raise AssertionError(f"no session on slot {slot}")

    def told(self, sid: str, tool: str, **given: object) -> str:
        """Calls a tool and returns its text."""
        answer = self.raw.call(sid, tool, given, env="ground", headers=self.headers)
        return str(answer.result()["output"]["blocks"][0]["text"])

    def healthy(self) -> bool:
        """Whether it still answers."""
        return self.alive and self.raw.get("/health").status == 200


def family(pid: int) -> list[int]:
    """A process and all that it has started."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(each for child in children for each in family(int(child)))]


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def until(what: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    """Asks again and again whether it is so; says whether it was in time."""
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@contextmanager
def _started(
    command: Sequence[str], pattern: str, log: Path, env: dict[str, str], files: int | None
) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    """A process that says where it listens."""

    if files is not None:
        command = ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", *command]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=ROOT, env=variables(env), stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    try:
        up = until(lambda: re.search(pattern, log.read_text()) is not None)
        assert up, f"it does not listen: {log.read_text()}"
        yield process, re.findall(pattern, log.read_text())[0]
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def front(
    name: str,
    folder: Path,
    *words: str,
    key: str = "",
    files: int | None = None,
    target: str = GROUND,
    beside: Sequence[str] = (),
) -> Iterator[Front]:
    """One front end for as long as the block lasts, with these words for `ors serve`.

    `beside` are servers that a router has besides its own.
    """
    traces = folder / "traces"
    env = {
        "GROUND_TRACES": str(traces),
        "GROUND_KEYS": key,
        "GROUND_ORIGINS": ORIGIN if key else "",
        "PYTHONUNBUFFERED": "1",
    }
    access = ["--api-key", f"team={key}", "--cors-origin", ORIGIN] if key else []
    serve = [*ORS, "serve", target, "--port", "0", "--log-level", "warning", *access, *words]
    with ExitStack() as stack:

        def start(label: str, command: Sequence[str], pattern: str) -> str:
            log = folder / f"{label}.log"
            process, url = stack.enter_context(_started(command, pattern, log, env, files))
            made.processes.append(process)
            made.logs.append(log)
            return url

        made = Front(name, "", [], [], traces, key)
        if name == "asgi":
            made.url = start(
                "asgi", [*UVICORN, "--port", "0", "--timeout-keep-alive", "1"], r"running on (http://\S+)"
            )
        else:
            more = ["--workers", str(WORKERS)] if name == "workers" else []
            made.url = start("server", [*serve, *more], r"Serving on (http://\S+)")
        if name == "router":
            trusted = ["--api-key", key, "--cors-origin", ORIGIN] if key else []
            others = [word for url in (made.url, *beside) for word in ("--to", url)]
            route = [*ORS, "route", *others, "--port", "0", "--log-level", "warning", *trusted]
            made.url = start("router", route, r"Routing on (http://\S+)")
        assert until(lambda: made.raw.get("/list_environments", headers=made.headers).status == 200)
        slots: list[int | None] = list(range(WORKERS)) if name == "workers" else [None]
        made.sids = [made.session(slot) for slot in slots]
        made.at_first = made.megabytes
        yield made


UVICORN = [sys.executable, "-m", "uvicorn", "tests.attack.ground:app", "--factory", "--log-level", "info"]
