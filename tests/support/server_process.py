"""A server in a process of its own, which tests can load or kill. Run as a script, it is that process."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from ors import Environment, Server, TextBlock, ToolOutput, tool
from ors.types import Blocks, JSONObject


class Slow(Environment):
    """Counts how many of its calls are running at once."""

    running: ClassVar[int] = 0

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{}]

    def get_prompt(self) -> Blocks:
        return [TextBlock(text="")]

    @tool
    async def wait(self, seconds: float) -> ToolOutput:
        """Takes its time; tells how many were running when it was done."""
        Slow.running += 1
        await asyncio.sleep(seconds)
        together = Slow.running
        Slow.running -= 1
        return ToolOutput(blocks=[TextBlock(text="waited")], metadata={"together": together})


def told(url: str) -> None:
    print(url, flush=True)


@contextmanager
def server_elsewhere(port: int = 0) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """The process and its URL."""
    command = [sys.executable, "-m", "tests.support.server_process", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()


if __name__ == "__main__":
    Server([Slow]).runner(port=int(sys.argv[1]), on_start=told).run()
