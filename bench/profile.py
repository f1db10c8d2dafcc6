"""Where the microseconds of a call go: `python -m bench.profile`."""

import argparse
import cProfile
import gc
import pstats
from collections import defaultdict
from pathlib import Path
from typing import Any

from bench import floor, load, machine, plans, wire
from bench.plans import Step
from bench.servers import running

TOOLS = {"submit": plans.SUBMIT, "submit_sync": plans.SUBMIT_SYNC, "big64": plans.BIG_64}
PARTS = {
    "ors/server/app.py": "HTTP: routes, answers",
    "ors/server/http/requests.py": "HTTP: reading the request",
    "ors/server/sessions/session.py": "session: lookup, state",
    "ors/server/sessions/registry.py": "session: lookup, state",
    "ors/server/sessions/calls.py": "call: task, replay",
    "ors/server/sessions/kept_results.py": "call: task, replay",
    "ors/server/episodes/episode.py": "episode: turn, finished rule",
    "ors/server/episodes/author_code.py": "episode: turn, finished rule",
    "ors/server/episodes/threads.py": "threads",
    "ors/server/connections/connection.py": "HTTP: the connection",
    "ors/server/http/answers.py": "HTTP: routes, answers",
    "ors/server/admin/metrics.py": "metrics, observers",
    "ors/server/observe/events.py": "metrics, observers",
    "prometheus_client/": "metrics, observers",
    "ors/server/http/origin_check.py": "keys, origins, admission",
    "ors/server/sessions/admission.py": "keys, origins, admission",
    "ors/_authoring/": "tool: validation, call",
    "ors/_json.py": "JSON and events",
    "ors/_protocol/": "JSON and events",
    "bench/environment.py": "the author's tool (and its ToolOutput)",
    "uvicorn/": "uvicorn's protocol",
    "asyncio/": "asyncio",
    "ors/": "ors, other",
}

HARNESS = "bench/wire.py"

Function = tuple[str, int, str]


def _function_profile(tool: Step, connections: int, rounds: int) -> pstats.Stats:
    async def measure() -> pstats.Stats:
        wires = await wire.ours(connections)
        await wires.open(tool)
        await wires.timed(max(10, rounds // 4))  # warm
        profiler = cProfile.Profile()
        gc.disable()  # it would strike at random
        profiler.enable()
        for _ in range(rounds):
            await wires.round()
        profiler.disable()
        gc.enable()
        return pstats.Stats(profiler)

    found: pstats.Stats = wire.run(measure)
    return found


def function_calls(tool: str = "submit", connections: int = 8, rounds: int = 50) -> float:
    """Functions, of Python and of C, that run for one call: nearly the same every time, on every machine."""
    stats: Any = _function_profile(TOOLS[tool], connections, rounds)
    counted = 0
    for (file, _, _), (_, calls, _, _, callers) in stats.stats.items():
        if file != "~":
            counted += 0 if HARNESS in file else calls
        else:  # a C function belongs to whoever calls it
            counted += sum(found[1] for caller, found in callers.items() if HARNESS not in caller[0])
    return counted / (connections * rounds)


def _on_sockets(tool: Step, connections: int) -> float:
    """Microseconds of CPU a call of the server as it is, of the least disturbed of five runs."""
    with running("ours") as (server,):
        load.run(server, plans.calls(tool), connections, seconds=0.5)  # warm
        return min(load.run(server, plans.calls(tool), connections, seconds=1.0).cpu_us for _ in range(5))


def _on_wires(make: Any, tool: Step, connections: int, rounds: int) -> float:
    """Microseconds of CPU a call without sockets."""

    async def measure() -> float:
        wires = await make(connections)
        await wires.open(tool)
        await wires.timed(rounds // 2)  # warm
        return float(await wires.timed(rounds)) * 1e6

    found: float = wire.run(measure)
    return found


def _layers(tool: Step, connections: int, rounds: int) -> list[tuple[str, float]]:
    """Microseconds of CPU a call, measured without a profiler; the first one is the whole."""
    whole = _on_sockets(tool, connections)
    if tool is plans.SUBMIT_SYNC:
        # Its threads and the loop that polls the wires would fight for the interpreter.
        return [("all", whole)]
    ours = _on_wires(wire.ours, tool, connections, rounds)
    bare = _on_wires(floor.on_wires, tool, connections, rounds)
    return [
        ("all", whole),
        ("of it our server and the tool, without sockets", ours),
        ("of it sockets and the kernel: the difference", whole - ours),
        ("the floor (uvicorn's protocol, ASGI, a task a request), without sockets", bare),
    ]


def _own_times(stats: Any) -> dict[Function, tuple[float, float]]:
    """Own seconds and calls of every Python function; the C functions that it calls count as its own."""
    own: dict[Function, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for function, (_, count, seconds, _, callers) in stats.stats.items():
        if function[0] != "~":
            own[function][0] += seconds
            own[function][1] += count
            continue
        for caller, (_, _, part, _) in callers.items():
            own[caller][0] += part
    return {function: (seconds, count) for function, (seconds, count) in own.items()}


def _part(file: str) -> str:
    return next((part for piece, part in PARTS.items() if piece in file), "pydantic, json, others")


def _print_functions(stats: Any, calls: int, inside_us: float, top: int) -> None:
    own = {f: found for f, found in _own_times(stats).items() if HARNESS not in f[0]}
    whole = sum(seconds for seconds, _ in own.values())
    parts: dict[str, float] = defaultdict(float)
    for (file, _, _), (seconds, _) in own.items():
        parts[_part(file)] += seconds
    print(
        "\nBy part (shares of cProfile, which makes small functions look dearer, scaled to the time above;\n"
        " of the loop's thread alone)"
    )
    for part, seconds in sorted(parts.items(), key=lambda item: -item[1]):
        print(f"  {seconds / whole * inside_us:7.2f} µs  {seconds / whole:6.1%}  {part}")
    print(f"\nBy function, the dearest {top} (own time with the C functions that it calls)")
    print("       time   share  runs a call")
    for (file, line, name), (seconds, count) in sorted(own.items(), key=lambda item: -item[1][0])[:top]:
        where = "/".join(Path(file).parts[-2:]) if file != "~" else "C"
        share = seconds / whole
        print(f"  {share * inside_us:6.2f} µs  {share:5.1%}  {count / calls:7.2f}  {where}:{line} {name}")


def main() -> None:
    """Prints three tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=__doc__)
    parser.add_argument("--tool", choices=TOOLS, default="submit", help="what is called")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=1000, help="calls on every connection")
    parser.add_argument("--top", type=int, default=30, help="functions to show")
    given = parser.parse_args()
    tool = TOOLS[given.tool]
    with machine.pinned(machine.cores()[0]):
        layers = _layers(tool, given.connections, given.rounds)
    print(f"CPU a call, {given.connections} connections, tool {given.tool}, without a profiler")
    for name, microseconds in layers:
        print(f"  {microseconds:7.2f} µs  {name}")
    with machine.pinned(machine.cores()[0]):
        stats = _function_profile(tool, given.connections, given.rounds)
    calls = given.connections * given.rounds
    _print_functions(stats, calls, layers[min(1, len(layers) - 1)][1], given.top)
    print(f"\n{function_calls(given.tool):.1f} functions of Python and C run for one call")


if __name__ == "__main__":
    main()
