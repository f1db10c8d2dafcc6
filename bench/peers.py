"""Ours beside its peers, each with its own server and async client: `python -m bench.peers`, in five minutes.

One core has the server, another the client. All take turns in every round; a ratio is of one round. With
`--publish`, the table and a picture of it go to docs/bench-peers.md and .png.
"""

import argparse
import datetime
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench import chart, machine, reference
from bench.servers import ROOT, Process, python_of

OPENENV = ("openenv", "0.10.0", "uvicorn[standard]")
PEERS = {"ours": "ours", "openenv": "OpenEnv 0.10.0", "reference": "ors-sdk 0.1.0"}
LOADS = [(kind, concurrency) for kind in ("open", "episodes") for concurrency in (1, 32, 256)]
TITLES = {"open": "open sessions", "episodes": "whole episodes of five steps"}
Figures = dict[str, float]
Found = dict[str, list[Figures]]
"""What each package reached in each round."""


class OpenEnv(Process):
    """OpenEnv's server."""

    def command(self) -> list[str]:
        return [*reference.python(*OPENENV), "-m", "bench.openenv", "serve", str(self.port)]


@contextmanager
def running() -> Iterator[dict[str, Process]]:
    """The servers, side by side."""
    with ExitStack() as stack:
        made: dict[str, Process] = {}
        for name in PEERS:
            server = (
                OpenEnv("reference")
                if name == "openenv"
                else Process("ours" if name == "ours" else "reference")
            )
            stack.callback(server.stop)
            made[name] = server
        yield made


def play(name: str, server: Process, kind: str, concurrency: int, seconds: float) -> Figures:
    """What one client sees, with the server's CPU time a step."""
    words = [server.url, str(concurrency), str(seconds), kind]
    if name == "openenv":
        command = [*reference.python(*OPENENV), "-m", "bench.openenv", "play", *words]
    else:
        python = python_of("ours" if name == "ours" else "reference")
        command = [*python, "-m", "bench.peer_client", *words]
    before = machine.cpu_seconds(server.pid)
    with machine.pinned(machine.cores()[1]):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)
    if done.returncode:
        raise RuntimeError(f"{name} failed: {done.stderr.strip()[-500:]}")
    found: Figures = json.loads(done.stdout)
    # Opening and closing counts too, as for the client in episodes; with open sessions it is a small part.
    return {**found, "server_us": (machine.cpu_seconds(server.pid) - before) / found["steps"] * 1e6}


def measure(rounds: int, seconds: float) -> dict[str, Found]:
    """What was found for each load, by its title."""
    every = {}
    with running() as servers:
        for kind, concurrency in LOADS:
            found: Found = {name: [] for name in servers}
            for number in range(rounds):
                for name in list(servers)[:: 1 if number % 2 else -1]:
                    found[name].append(play(name, servers[name], kind, concurrency, seconds))
            title = f"{TITLES[kind]}, {concurrency} at once"
            every[title] = found
            print(_row(title, found), flush=True)
    return every


def _row(title: str, found: Found) -> str:
    cells = [title]
    for name in PEERS:
        rate, p50, p99, client, server = (
            statistics.median(each[key] for each in found[name])
            for key in ("rate", "p50_ms", "p99_ms", "cpu_us", "server_us")
        )
        cells.append(f"{rate:,.0f}; {p50:.1f} / {p99:.1f} ms; {client:.0f} + {server:.0f} µs")
    for name in list(PEERS)[1:]:
        ratios = [one["rate"] / other["rate"] for one, other in zip(found["ours"], found[name], strict=True)]
        cells.append(f"{statistics.median(ratios):.1f} ({min(ratios):.1f}–{max(ratios):.1f})")
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Prints the table, and publishes it if that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--publish", action="store_true", help="write docs/bench-peers.md and .png")
    given = parser.parse_args()
    machine.allow_many_files()
    names = [*PEERS.values(), *(f"ours / {name}" for name in list(PEERS.values())[1:])]
    head = ["| | " + " | ".join(names) + " |", "| --- |" + " ---: |" * len(names)]
    noise = machine.noise_now()
    found = measure(given.rounds, given.seconds)
    rows = [_row(title, each) for title, each in found.items()]
    about = machine.described()
    told = (
        "Each cell: steps per second; median and 99th-percentile latency; CPU time per step, client + server."
    )
    where = (
        f"{datetime.date.today()}, {about['processor']}, Python {about['python']}; others took {noise:.0%}."
    )
    text = "\n".join(["# Beside other packages", "", *head, *rows, "", told, "", where, ""])
    print(text, file=sys.stdout)
    if given.publish:
        (ROOT / "docs" / "bench-peers.md").write_text(text)
        rates = {
            title: [statistics.median(one["rate"] for one in each[name]) for each in found.values()]
            for name, title in PEERS.items()
        }
        groups = [title.replace(", ", "\n", 1) for title in found]
        chart.draw(rates, groups, where, ROOT / "docs" / "bench-peers.png")


if __name__ == "__main__":
    main()
