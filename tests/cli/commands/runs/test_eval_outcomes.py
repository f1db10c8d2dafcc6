"""`ors eval`: what episodes count as that were given up, cut off or failed, in the report and afterwards."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Done, run

pytestmark = pytest.mark.long

RIDDLES = """
from ors import Environment, TextBlock, ToolOutput, tool

class Riddles(Environment):
    @classmethod
    def list_splits(cls):
        return ["train"]

    @classmethod
    def list_tasks(cls, split):
        return [{"number": n} for n in range(6)]

    def get_prompt(self):
        return [TextBlock(text="Solve it.")]

    @tool
    def look(self) -> ToolOutput:
        'Look around.'
        return ToolOutput(blocks=[])

    @tool
    def solve(self, right: bool) -> ToolOutput:
        'Solve it.'
        return ToolOutput(blocks=[], reward=float(right), finished=True)
"""

AGENTS = """
from ors.client import ToolInvocation
from ors.rollouts import AgentMessage

class Agent:
    '''Solves the tasks 0 to 2; what it does in the others is its name.'''

    async def reply(self, conversation, tools):
        if conversation.task.index < 3:
            return self.solve(True)
        return self.otherwise()

    def solve(self, right):
        return AgentMessage(calls=(ToolInvocation("solve", {"right": right}, "call_1"),))

class Wrong(Agent):
    def otherwise(self):
        return self.solve(False)

class Talks(Agent):
    def otherwise(self):
        return AgentMessage("I would rather not.")

class Loops(Agent):
    def otherwise(self):
        return AgentMessage(calls=(ToolInvocation("look", {}, "call_1"),))
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "riddles.py").write_text(RIDDLES)
    (tmp_path / "agents.py").write_text(AGENTS)
    return tmp_path


def evaluated(place: Path, agent: str, *more: str) -> Done:
    words = ["eval", "riddles.py", "--model", f"agents:{agent}", "--out", agent, "--max-turns", "3", *more]
    return run(*words, cwd=place)


def test_a_model_that_gives_up_is_no_better_than_one_that_loses(place: Path) -> None:
    for agent, without in (("Wrong", 0), ("Talks", 3), ("Loops", 3)):
        done = evaluated(place, agent, "--fail-under", "0.9", "--json")
        assert done.code == 1, done.err
        assert "the mean reward is 0.5, and --fail-under is 0.9" in done.err
        assert (done.json["reward"]["mean"], done.json["unrewarded"]) == (0.5, without)
        assert done.json["passes"][0]["any"] == 0.5
    shown = run("runs", "show", "Talks", cwd=place).out
    assert "mean reward: 0.5 [" in shown
    assert "6 episodes of 6 tasks, 3 without a reward (counted as 0)" in shown
    listed = {each["run"]: each for each in run("runs", "list", "--json", cwd=place).json}
    assert {each["reward"]["mean"] for each in listed.values()} == {0.5}
    assert len(listed) == 3
    for agent in ("Talks", "Loops"):
        compared = run("runs", "compare", "Wrong", agent, "--json", cwd=place).json
        assert (compared["difference"]["mean"], len(compared["changes"])) == (0, 6)


def test_what_episodes_without_a_reward_count_as_can_be_chosen_and_is_kept(place: Path) -> None:
    done = evaluated(place, "Talks", "--unscored-reward", "-1", "--truncated-reward", "-3")
    assert "mean reward: 0 [" in done.out
    assert "3 without a reward (counted as -1 if unscored, -3 if truncated)" in done.out
    kept: dict[str, Any] = json.loads((place / "Talks" / "run.json").read_text())["config"]
    assert (kept["unscored_reward"], kept["truncated_reward"]) == (-1, -3)
    assert evaluated(place, "Loops", "--truncated-reward", "-3").code == 0
    found = run("runs", "compare", "Talks", "Loops", "--json", cwd=place).json
    assert (found["before"], found["after"]) == (0, -1)
    assert run("eval", "--resume", "Loops", "--json", cwd=place).json["reward"]["mean"] == -1
