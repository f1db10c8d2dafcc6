"""Serves all examples and says what to try: `python -m examples [--host HOST] [--port PORT]`."""

import argparse
import asyncio
import errno
import inspect
import socket
import sys
from collections.abc import Awaitable
from typing import TypeVar

from examples.countdown import Countdown
from examples.math_qa import MathQA
from examples.maze import Maze
from examples.open_book import OpenBook
from examples.repair import Repair
from examples.word_hunt import WordHunt
from ors import Environment, Server, Split

T = TypeVar("T")

EXAMPLES: list[type[Environment]] = [MathQA, WordHunt, Maze, OpenBook, Countdown, Repair]

WELCOME = """\
Serving {count} environments on {url} (stop with Ctrl-C)

{table}

An episode by hand, to paste into another terminal:

URL={url}
SID=$(curl -s -X POST $URL/create_session | cut -d'"' -f4)
curl -s $URL/create -H "X-Session-ID: $SID" -d '{{"env_name": "mathqa", "split": "train", "index": 0}}'; echo
curl -s $URL/mathqa/prompt -H "X-Session-ID: $SID"; echo
curl -s $URL/mathqa/call -H "X-Session-ID: $SID" -d '{{"name": "submit", "input": {{"answer": 42}}}}'
curl -s -X POST $URL/delete -H "X-Session-ID: $SID"; echo

The same from Python:

from ors.client import ORS

with ORS(base_url="{url}") as client:
    with client.environment("mathqa").session(split="train", index=0) as session:
        print(session.get_prompt())
        print(session.call_tool("submit", {{"answer": 42}}))

"""


def main() -> None:
    """Serves until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m examples", description="Serve the example environments.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080, help="0 takes any free port (default: 8080)")
    given = parser.parse_args()
    listener = listening(given.host, given.port)
    table = asyncio.run(described())
    Server(EXAMPLES).runner(
        given.host,
        given.port,
        on_start=lambda url: print(WELCOME.format(count=len(EXAMPLES), url=url, table=table), flush=True),
    ).run(sockets=[listener])


def listening(host: str, port: int) -> socket.socket:
    """Opens a socket on that port, or ends the program."""
    try:
        return socket.create_server((host, port))
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        why = "the port is taken" if taken else error.strerror or error
        sys.exit(f"Cannot serve on {host}:{port}: {why}. Try another: python -m examples --port {port + 1}")


async def described() -> str:
    """A line for each environment: its name, its splits with their sizes, its tools."""
    rows = [(cls.name().lower(), await splits(cls), await tools(cls)) for cls in EXAMPLES]
    name_width, splits_width = (max(len(row[column]) for row in rows) for column in (0, 1))
    return "\n".join(
        f"  {name:{name_width}}  {tasks:{splits_width}}  tools: {names}" for name, tasks, names in rows
    )


async def splits(cls: type[Environment]) -> str:
    """The splits of an environment, with their numbers of tasks."""
    listed = await waited(cls.list_splits())
    names = [split.name if isinstance(split, Split) else split for split in listed]
    return ", ".join([f"{name} {await waited(cls.num_tasks(name)):,}" for name in names])


async def tools(cls: type[Environment]) -> str:
    """The tools that every task of an environment has."""
    names = ", ".join(spec.name for spec in (await waited(cls.list_tools())).tools)
    more = cls.list_task_tools is not Environment.list_task_tools
    return f"{names}, and what the task adds" if more else names


async def waited(value: T | Awaitable[T]) -> T:
    """The value of an environment's method, whether `def` or `async def`."""
    return await value if inspect.isawaitable(value) else value


if __name__ == "__main__":
    main()
