"""Ten thousand recorded episodes of ten steps: `python -m bench.records [--episodes N] [--steps N]`.

Measured: by how much the process that writes them grows, what one append takes, and how long `ors runs show`
takes. The exit code is 1 if a bound is missed.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ors.client import ToolInvocation
from ors.rollouts import (
    AgentMessage,
    EpisodeRecord,
    Message,
    Scored,
    TaskRef,
    ToolMessage,
    Usage,
    UserMessage,
)
from ors.rollouts.records import RunInfo, RunWriter
from ors.types import TextBlock, ToolSpec

MOST_GROWTH = 100e6
MOST_SECONDS = 2.0
SAMPLES = 10
TOOL = ToolSpec(name="step", description="Does one step.", input_schema={"type": "object", "properties": {}})
TEXT = "What the tool says to the agent, in a few lines. " * 6


def played(number: int, steps: int) -> EpisodeRecord:
    """One episode, with texts of usual length."""
    messages: list[Message] = [UserMessage([TextBlock(text=TEXT)])]
    for step in range(steps):
        call = ToolInvocation("step", {"number": step}, f"call_{step}")
        messages.append(AgentMessage(TEXT, (call,), usage=Usage(1000 * step, 100), seconds=1.5))
        messages.append(ToolMessage(call.id, "step", [TextBlock(text=TEXT)], reward=0.0, seconds=0.01))
    task, sample = divmod(number, SAMPLES)
    return EpisodeRecord(
        f"{number:032x}",
        TaskRef("bench", "train", task),
        sample,
        Scored(),
        float(number % 3 == 0),
        (0.0,) * steps,
        tuple(messages),
        (TOOL,),
        seconds=15.0,
    )


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=10)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        with RunWriter.create(folder, RunInfo()) as writer:
            writer.append(played(0, given.steps))
            before, spent = resident(), 0.0
            for number in range(1, given.episodes):
                record = played(number, given.steps)
                began = time.perf_counter()
                writer.append(record)
                spent += time.perf_counter() - began
            grown = resident() - before
        size = (Path(folder) / "episodes.jsonl").stat().st_size
        began = time.perf_counter()
        command = [sys.executable, "-m", "ors", "runs", "show", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        shown = time.perf_counter() - began
    print(f"{given.episodes:,} episodes of {given.steps} steps, {size / 1e6:.0f} MB on disk")
    print(f"append: {spent / given.episodes * 1e6:.0f} µs; the process grew by {grown / 1e6:.1f} MB")
    print(f"ors runs show: {shown:.2f} s")
    sys.exit(grown > MOST_GROWTH or shown > MOST_SECONDS)


if __name__ == "__main__":
    main()
