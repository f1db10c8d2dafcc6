"""How workers scale over cores: `python -m bench.cores`, in about two minutes, on more than four cores.

Load generators have four cores, or half of them if there are fewer than twelve; the workers have the others.
The last row of each load has as many servers that know nothing of each other: what the machine can give.
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
            str(count): [stack.enter_context(ors("serve", TARGET, "--workers", str(count)))]
            for count in counts
        }
        apart = f"{counts[-1]} apart"
        servers[apart] = [stack.enter_context(ors("serve", TARGET)) for _ in range(counts[-1])]
        os.sched_setaffinity(0, usable)
        for name, plan in PLANS.items():
            rates: dict[str, list[float]] = {name: [] for name in servers}
            for _ in range(ROUNDS):
                for workers, each in servers.items():
                    rates[workers].append(_rate(each, plan, generators))
            for workers, found in rates.items():
                times = [much / one for much, one in zip(found, rates["1"], strict=True)]
                rate, ratio = statistics.median(found), statistics.median(times)
                print(f"{name:<9} {workers:>7} workers {rate:>9,.0f}/s  {ratio:.1f} times", flush=True)


def _rate(servers: Sequence[Command], plan: plans.Plan, cores: Sequence[int]) -> float:
    """Times through the plan's loop a second, of all load generators together."""
    shared = [servers[number % len(servers)] for number in range(max(len(servers), len(cores)))]
    connections = CONNECTIONS * len(cores) // len(shared)
    with ThreadPoolExecutor(len(shared)) as pool:
        running = [
            pool.submit(load.run, server, plan, connections, SECONDS, core=cores[number % len(cores)])
            for number, server in enumerate(shared)
        ]
        return sum(each.result().passes_per_second for each in running)


if __name__ == "__main__":
    main()
