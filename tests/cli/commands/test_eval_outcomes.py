"""`ors eval`: what episodes count as that were given up, cut off or failed, and what becomes of the run."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ors.rollouts.records import read_run
from tests.support.commands import Done, run
from tests.support.model_provider import ChatAnswers, providing
from tests.support.scripted_server import answer

pytestmark = pytest.mark.long

RIDDLES = """
from pathlib import Path
from ors import Environment, TextBlock, ToolOutput, tool

class Riddles(Environment):
    @classmethod
    def list_splits(cls):
        return ["train"]

    @classmethod
    def list_tasks(cls, split):
        return [{"number": n} for n in range(6)]

    def setup(self):
        broken = Path("broken")
        if broken.exists() and self.task_spec["number"] < int(broken.read_text()):
            raise RuntimeError("the setup is broken")

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

class Raises(Agent):
    def otherwise(self):
        raise RuntimeError("no idea")

class Loops(Agent):
    def otherwise(self):
        return AgentMessage(calls=(ToolInvocation("look", {}, "call_1"),))
"""

KEY = {"OPENAI_API_KEY": "sk-this-is-the-key-of-the-provider"}


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


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_a_provider_that_refuses_the_key_or_the_model_stops_the_run_at_once(
    place: Path, status: int
) -> None:
    chat = ChatAnswers()
    async with providing(chat) as provider:
        provider.on(chat.path, *[answer({"error": {"message": "no"}}, status)] * 6)
        how = ["--model", "openai:some-model", "--base-url", provider.url + chat.prefix, "--concurrency", "1"]
        words = ["eval", "riddles.py", *how, "--out", "run"]
        done = await asyncio.to_thread(run, *words, cwd=place, env=KEY)
        assert (done.code, len(provider.requests)) == (3, 1)
    (last,) = [line for line in done.err.splitlines() if line.startswith("Error: ")]
    assert last.startswith("Error: Stopped: model: 127.0.0.1")
    assert str(status) in last
    assert last.endswith("To continue: ors eval --resume run")


async def test_a_run_whose_provider_was_down_is_no_success_and_can_be_resumed(place: Path) -> None:
    chat = ChatAnswers()
    how = [
        "--model",
        "openai:some-model",
        "--base-url",
        "http://127.0.0.1:9/v1",
        "--model-options",
        '{"retries": 0}',
    ]
    done = run("eval", "riddles.py", *how, "--out", "run", cwd=place, env=KEY)
    assert done.code == 3
    assert "6 of 6 episodes failed (model 6); to try them again: ors eval --resume run" in done.err
    async with providing(chat) as provider:
        right = chat("", [("call_1", "solve", '{"right": true}')])
        provider.on(chat.path, *[answer(right)] * 6)
        words = ["eval", "--resume", "run", "--base-url", provider.url + chat.prefix, "--json"]
        done = await asyncio.to_thread(run, *words, cwd=place, env=KEY)
    assert (done.code, done.json["outcomes"]) == (0, {"scored": 6}), done.err
    assert done.json["episodes"] == 6


def test_too_many_setups_that_fail_are_exit_code_3_and_are_played_again(place: Path) -> None:
    (place / "broken").write_text("1")
    done = evaluated(place, "Wrong")
    assert done.code == 0, done.err  # 1 of 6 is under a fifth
    assert "6 episodes of 6 tasks, 1 failed (left out)" in done.out
    assert evaluated(place, "Talks", "--max-failed", "0.1").code == 3
    (place / "broken").write_text("2")
    done = evaluated(place, "Loops")
    assert done.code == 3
    assert "2 of 6 episodes failed (environment 2); to try them again: ors eval --resume Loops" in done.err
    (place / "broken").unlink()
    done = run("eval", "--resume", "Loops", "--retry", "model", cwd=place)
    assert done.code == 3, done.err
    done = run("eval", "--resume", "Loops", "--json", cwd=place)
    assert (done.code, done.json["outcomes"]) == (0, {"scored": 3, "truncated": 3})


def test_failures_in_a_row_stop_the_run(place: Path) -> None:
    (place / "broken").write_text("6")
    done = evaluated(place, "Wrong", "--concurrency", "1", "--samples", "4")
    assert done.code == 3
    assert len(read_run(place / "Wrong").entries) == 20
    (last,) = [line for line in done.err.splitlines() if line.startswith("Error: ")]
    assert last.startswith("Error: Stopped after 20 failures in a row: environment: ")
    assert last.endswith("To continue: ors eval --resume Wrong")
    (place / "broken").write_text("0")
    done = run("eval", "--resume", "Wrong", "--json", cwd=place)
    assert (done.code, done.json["episodes"], done.json["outcomes"]) == (0, 24, {"scored": 24})


def test_failures_of_the_agents_own_code_are_played_again_only_if_that_is_asked_for(place: Path) -> None:
    done = evaluated(place, "Raises")
    assert done.code == 3
    assert "3 of 6 episodes failed (agent 3); to try them again" in done.err
    assert "ors eval --resume Raises --retry agent" in done.err
    lines = (place / "Raises" / "episodes.jsonl").read_text().count("\n")
    assert run("eval", "--resume", "Raises", cwd=place).code == 3
    assert (place / "Raises" / "episodes.jsonl").read_text().count("\n") == lines
    assert run("eval", "--resume", "Raises", "--retry", "agent", cwd=place).code == 3
    assert (place / "Raises" / "episodes.jsonl").read_text().count("\n") == lines + 3
    assert len(read_run(place / "Raises").entries) == 6


async def test_a_limit_of_cost_without_usage_stops_the_run_and_reports_say_that_it_is_unknown(
    place: Path,
) -> None:
    chat = ChatAnswers()
    right = {**chat("", [("call_1", "solve", '{"right": true}')]), "usage": None}
    prices = ["--prices", '{"openai:some-model": {"input": 1, "output": 2}}']
    async with providing(chat) as provider:
        provider.on(chat.path, *[answer(right)] * 7)
        how = ["--model", "openai:some-model", "--base-url", provider.url + chat.prefix, *prices]
        words = ["eval", "riddles.py", *how, "--concurrency", "1", "--out"]
        done = await asyncio.to_thread(run, *words, "limited", "--max-cost", "1", cwd=place, env=KEY)
        assert (done.code, len(provider.requests)) == (3, 1)
        said = "Error: Stopped: model: cannot enforce the limit on cost: the model provider reports"
        assert done.err.count(said) == 1
        done = await asyncio.to_thread(run, *words, "free", cwd=place, env=KEY)
    assert done.code == 0, done.err
    assert "usage: not reported for 6 model requests\ncost: unknown\n" in done.out
    shown = run("runs", "show", "free", "--json", cwd=place).json["usage"]
    assert (shown["cost"], shown["unknown"]) == (None, 6)
