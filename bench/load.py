"""The load generator, compiled on demand, and what it measured."""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench import machine
from bench.plans import Plan
from bench.reference import cache
from bench.servers import Subject

_SOURCES = [Path(__file__).with_name(name) for name in ("load.c", "answer.h")]
LONGEST_SECONDS = 300


class NoCompiler(RuntimeError):
    """There is no C compiler on this machine."""


class WrongAnswer(RuntimeError):
    """A server answered something else than expected, so its figures mean nothing."""


class Target(Protocol):
    """A server to put load on."""

    subject: Subject
    port: int

    @property
    def pid(self) -> int:
        """Its process id."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one run of the load generator measured."""

    seconds: float
    passes: int
    calls: int
    bytes: int
    errors: int
    reconnects: int
    p50_us: float
    p90_us: float
    p99_us: float
    max_us: float
    server_cpu: float
    own_cpu: float
    first_error: str
    noise: float

    @property
    def passes_per_second(self) -> float:
        """Times through the loop per second."""
        return self.passes / self.seconds

    @property
    def cpu_us(self) -> float:
        """The server's CPU time for one time through the loop."""
        return self.server_cpu / self.passes * 1e6


def program() -> Path:
    """The compiled load generator.

    Raises:
        NoCompiler: there is none to compile it with.
    """
    version = hashlib.sha256(b"".join(source.read_bytes() for source in _SOURCES)).hexdigest()[:12]
    target = cache() / f"load-{version}"
    if target.exists():
        return target
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise NoCompiler("no C compiler found: install one (Debian, Ubuntu: apt install gcc libc6-dev)")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as made:
        subprocess.run([compiler, "-O2", "-o", made.name, str(_SOURCES[0])], check=True)
    Path(made.name).chmod(0o755)
    Path(made.name).rename(target)  # whole or not at all, whoever else compiles it now
    return target


def run(
    server: Target,
    plan: Plan,
    connections: int,
    seconds: float = 60.0,
    count: int = 0,
    *,
    core: int | None = None,
) -> Sample:
    """Puts a plan's load on a server: for some seconds, or for `count` times through its loop.

    The generator runs on `core`, or on the last one.

    Raises:
        WrongAnswer: an answer was wrong or missing.
    """
    steps = [step.canned() for step in plan] if server.subject == "floor" else plan
    noise, cpu_before = machine.Noise(), machine.cpu_seconds(server.pid)
    with (
        tempfile.NamedTemporaryFile("w", suffix=".plan") as file,
        machine.pinned(machine.cores()[1] if core is None else core),
    ):
        file.write("\n".join(step.line() for step in steps))
        file.flush()
        numbers = (server.port, file.name, connections, seconds, count, server.pid)
        command = [str(program()), *map(str, numbers)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False)
    if done.returncode:
        raise WrongAnswer(f"{server.subject}: {done.stderr.strip() or 'the load generator failed'}")
    figures = json.loads(done.stdout)
    own = machine.cpu_seconds(server.pid) - cpu_before + figures["own_cpu"]
    sample = Sample(**figures, noise=noise.share(own))
    if sample.errors or not sample.passes:
        raise WrongAnswer(f"{server.subject}: {sample.errors} wrong answers; the first: {sample.first_error}")
    return sample
