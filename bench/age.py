"""Whether a server ages: `python -m bench.age` plays a million short episodes on one, in five minutes."""

import argparse

from bench import load, machine, plans
from bench.servers import running

PARTS = 10
CONNECTIONS = 32


def main() -> None:
    """Prints what an episode costs in each tenth, and the last of them beside the first."""
    parser = argparse.ArgumentParser(prog="python -m bench.age", description=__doc__)
    parser.add_argument("--sessions", type=int, default=1_000_000)
    given = parser.parse_args()
    rows: list[tuple[float, ...]] = []
    with running("ours") as (server,):
        load.run(server, plans.episodes(), CONNECTIONS, seconds=1.0)  # warm
        for number in range(PARTS):
            sample = load.run(server, plans.episodes(), CONNECTIONS, count=given.sessions // PARTS)
            memory = machine.resident_bytes(server.pid) / 1e6
            rows.append((sample.cpu_us, sample.p99_us, sample.max_us, memory))
            told = "CPU {:.1f} µs, 99% within {:,.0f} µs, longest {:,.0f} µs, memory {:.1f} MB".format(
                *rows[-1]
            )
            print(
                f"{(number + 1) * given.sessions // PARTS:>9,} episodes: {sample.passes_per_second:,.0f}/s, "
                f"{told} (others took {sample.noise:.0%})",
                flush=True,
            )
    ratios = [last / first for first, last in zip(rows[0], rows[-1], strict=True)]
    print("last tenth / first: CPU {:.2f}, 99% {:.2f}, longest {:.2f}, memory {:.2f}".format(*ratios))


if __name__ == "__main__":
    main()
