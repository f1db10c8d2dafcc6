"""How workers scale over cores: `python -m bench.cores`, in about two minutes, on more than four cores.

Load generators have four cores, or half of them if there are fewer than twelve; the workers have the others.
"""

import os
import statistics
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from bench import load, machine, plans
from bench.cluster import TARGET, Command, ors

ROUNDS = 3
SECONDS = 2.0
CONNECTIONS = 64
"""Of each load generator."""
WORKERS = (1, 2, 4, 8)
PLANS = {"calls": plans.calls(plans.SUBMIT), "episodes": plans.episodes()}


def main() -> None:
    """Prints a table: requests a second, and times those of one worker."""
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) <= 4:
        sys.exit(
            f"This machine has {len(usable)} cores: too few to see how workers scale; use more than four."
        )
    generators = usable[-min(4, len(usable) // 2) :]
    counts = [count for count in WORKERS if count <= len(usable) - len(generators)]
    machine.allow_many_files()
    with ExitStack() as stack:
        os.sched_setaffinity(0, usable[: -len(generators)])
        servers = {
            count: stack.enter_context(ors("serve", TARGET, "--workers", str(count))) for count in counts
        }
        os.sched_setaffinity(0, usable)
        for name, plan in PLANS.items():
            rates: dict[int, list[float]] = {count: [] for count in counts}
            for _ in range(ROUNDS):
                for count, server in servers.items():
                    rates[count].append(_rate(server, plan, generators))
            for count in counts:
                times = [much / one for much, one in zip(rates[count], rates[1], strict=True)]
                rate, ratio = statistics.median(rates[count]), statistics.median(times)
                print(f"{name:<9} {count} workers {rate:>9,.0f}/s  {ratio:.1f} times", flush=True)


def _rate(server: Command, plan: plans.Plan, cores: Sequence[int]) -> float:
    """Times through the plan's loop a second, of all load generators together."""
    with ThreadPoolExecutor(len(cores)) as pool:
        running = [pool.submit(load.run, server, plan, CONNECTIONS, SECONDS, core=core) for core in cores]
        return sum(each.result().passes_per_second for each in running)


if __name__ == "__main__":
    main()
