"""Calls, episodes and large results: how many a second, and what each costs."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from bench import load, machine, plans
from bench.figures import Figures
from bench.load import Sample
from bench.plans import Plan
from bench.servers import SUBJECTS, Process, running


@dataclass(frozen=True, slots=True)
class Load:
    """One kind of load, and which rows its samples go to."""

    plan: Plan
    connections: int
    rows: dict[str, Callable[[Sample], float]]


def _megabytes(kilobytes: int) -> Callable[[Sample], float]:
    return lambda sample: sample.passes_per_second * kilobytes * 1024 / 1e6


_RATE: Callable[[Sample], float] = lambda sample: sample.passes_per_second  # noqa: E731
_CPU: Callable[[Sample], float] = lambda sample: sample.cpu_us  # noqa: E731

LOADS = (
    Load(
        plans.calls(plans.SUBMIT), 1, {"calls_1": _RATE, "cpu_1": _CPU, "p50_1": lambda sample: sample.p50_us}
    ),
    Load(
        plans.calls(plans.SUBMIT),
        32,
        {"calls_32": _RATE, "cpu_32": _CPU, "p99_32": lambda sample: sample.p99_us},
    ),
    Load(plans.calls(plans.SUBMIT), 256, {"calls_256": _RATE, "cpu_256": _CPU}),
    Load(plans.calls(plans.SUBMIT_SYNC), 32, {"sync_32": _RATE, "sync_cpu_32": _CPU}),
    Load(plans.episodes(), 32, {"episodes_32": _RATE, "episodes_cpu_32": _CPU}),
    Load(plans.calls(plans.BIG_64), 32, {"big_64": _megabytes(64)}),
    Load(plans.calls(plans.BIG_1024), 8, {"big_1024": _megabytes(1024)}),
)


@dataclass(slots=True)
class Patience:
    """How much longer a comparison may take because the machine is not quiet."""

    seconds: float

    def sample(self, run: Callable[[], Sample]) -> Sample:
        """The quietest of up to three runs, each begun in a quiet moment, as long as there is time left."""
        best: Sample | None = None
        for _ in range(3):
            began = time.monotonic()
            while self.seconds > time.monotonic() - began and machine.noise_now() > machine.QUIET:
                pass
            again = run()
            best = again if best is None else min(best, again, key=lambda sample: sample.noise)
            if best is again and best.noise <= machine.QUIET:
                break
            self.seconds -= time.monotonic() - began
            if self.seconds <= 0:
                break
        assert best is not None
        return best


def measure(figures: Figures, rounds: int, seconds: float, patience: Patience, wanted: str) -> None:
    """Runs every load whose rows begin with `wanted`, the servers taking turns."""
    loads = [kind for kind in LOADS if any(row.startswith(wanted) for row in kind.rows)]
    if not loads:
        return
    with running(*SUBJECTS) as servers:
        for server in servers:
            load.run(server, plans.calls(plans.SUBMIT), 8, seconds=0.3)  # warm
        for kind in loads:
            print(f"  {next(iter(kind.rows))}", flush=True)
            for number in range(rounds):
                for server in _turned(servers, number):
                    _sample(figures, kind, server, seconds, patience)


def _turned(servers: list[Process], number: int) -> list[Process]:
    start = number % len(servers)
    return servers[start:] + servers[:start]


def _sample(figures: Figures, kind: Load, server: Process, seconds: float, patience: Patience) -> None:
    sample = patience.sample(lambda: load.run(server, kind.plan, kind.connections, seconds))
    for row, value in kind.rows.items():
        figures.add(row, server.subject, value(sample), sample.noise)
