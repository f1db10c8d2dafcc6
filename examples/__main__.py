"""Serves the examples that need no API key: `python -m examples [--host HOST] [--port PORT]`."""

import argparse
import errno
import socket
import sys

from examples.countdown import Countdown
from examples.math_qa import MathQA
from examples.maze import Maze
from examples.open_book import OpenBook
from examples.repair import Repair
from examples.word_hunt import WordHunt
from ors import Environment, Server
from ors.cli.output.banner import Banner
from ors.server import is_loopback

EXAMPLES: list[type[Environment]] = [MathQA, WordHunt, Maze, OpenBook, Countdown, Repair]

ADVICE = """\
An episode by hand, to paste into another terminal:

URL={url}
SID=$(curl -s -X POST $URL/create_session | cut -d'"' -f4)
curl -s $URL/create -H "X-Session-ID: $SID" -d '{{"env_name": "mathqa", "split": "train", "index": 0}}'; echo
curl -s $URL/mathqa/prompt -H "X-Session-ID: $SID"; echo
curl -s $URL/mathqa/call -H "X-Session-ID: $SID" -d '{{"name": "submit", "input": {{"answer": 42}}}}'
curl -s -X POST $URL/delete -H "X-Session-ID: $SID"; echo

The same from Python (such as .venv/bin/python, after `make run`):

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
    parser.add_argument("--port", type=int, default=8080, help="0 picks a free port (default: 8080)")
    given = parser.parse_args()
    if not is_loopback(given.host):
        parser.error("without a key, for this machine only: try ORS_API_KEYS=... ors serve examples/maze.py")
    listener = listening(given.host, given.port)
    banner = Banner(inspector=True, private=True, advice=ADVICE)
    names = [cls.name().lower() for cls in EXAMPLES]
    Server(EXAMPLES).runner(given.host, given.port, on_start=lambda url: banner.show([url], names)).run(
        sockets=[listener]
    )


def listening(host: str, port: int) -> socket.socket:
    """Opens a socket on that port, or ends the program."""
    try:
        return socket.create_server((host, port))
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        why = "the port is taken" if taken else error.strerror or error
        again = f"make run PORT={port + 1}, or python -m examples --port {port + 1}"
        sys.exit(f"Cannot serve on {host}:{port}: {why}. Try another: {again}")


if __name__ == "__main__":
    main()
