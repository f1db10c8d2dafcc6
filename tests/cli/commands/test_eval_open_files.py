"""`ors eval` under limits of open files: a run goes on, with fewer episodes at once if need be."""

import shlex
import subprocess
from pathlib import Path

import pytest

from ors.rollouts.records import read_run
from tests.support.commands import ORS, PATIENCE, Done, variables

pytestmark = pytest.mark.long

CROWD = """
import asyncio
from ors import Environment, TextBlock, ToolOutput, tool

class Crowd(Environment):
    @classmethod
    def list_splits(cls):
        return ["train"]

    @classmethod
    def list_tasks(cls, split):
        return [{"number": n} for n in range(300)]

    def get_prompt(self):
        return [TextBlock(text=str(self.task_spec["number"]) * 70_000)]  # each is a blob of its own

    @tool
    async def solve(self) -> ToolOutput:
        'Solve it.'
        await asyncio.sleep(0.1)
        return ToolOutput(blocks=[], reward=1.0, finished=True)
"""

AGENTS = """
from ors.client import ToolInvocation
from ors.rollouts import AgentMessage

class Solver:
    async def reply(self, conversation, tools):
        return AgentMessage(calls=(ToolInvocation("solve", {}, "call_1"),))
"""


def limited(place: Path, limit: str, *more: str) -> Done:
    """Evaluates with a limit of open files, such as "-Sn 128"."""
    (place / "crowd.py").write_text(CROWD)
    (place / "agents.py").write_text(AGENTS)
    words = [*ORS, "eval", "crowd.py", "--out", "run", *more]
    command = ["bash", "-c", f"ulimit {limit}; exec {shlex.join(words)}"]
    done = subprocess.run(
        command, cwd=place, env=variables(), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert len(read_run(place / "run").entries) == 300, done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


def test_the_soft_limit_of_open_files_is_raised(tmp_path: Path) -> None:
    done = limited(tmp_path, "-Sn 128", "--model", "agents:Solver", "--concurrency", "300")
    assert done.code == 0, done.err
    assert "outcomes: scored 300" in done.out
    assert "Warning" not in done.err


def test_under_a_hard_limit_of_open_files_fewer_episodes_run_at_once(tmp_path: Path) -> None:
    done = limited(tmp_path, "-n 128", "--model", "agents:Solver", "--concurrency", "300")
    assert done.code == 0, done.err
    assert "outcomes: scored 300" in done.out
    said = "Warning: 300 concurrent episodes need more open files than the limit of 128: playing "
    assert said in done.err
