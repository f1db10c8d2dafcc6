"""`ors eval`: agents play, and the run is kept, reported, judged and resumed."""

import asyncio
import json
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ors import Server
from ors.cli.evaluation.report import EvalTally, rows
from ors.client import ORS
from ors.rollouts import Failed, RunningEpisode, Scored, TaskRef
from ors.rollouts.records import read_run
from tests.support import SUPPORT
from tests.support.commands import Terminal, environment_code, refused, run, running
from tests.support.episode_records import episode
from tests.support.eval_environments import Quiz
from tests.support.live_server import serving
from tests.support.model_provider import ChatAnswers, providing
from tests.support.scripted_server import Reply, answer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

QUIZ = str(SUPPORT / "eval_environments.py")
KEY = "sk-this-is-the-key-of-the-provider-9f4b"
LEAK = environment_code(
    "Leak",
    """
    @tool
    def tell(self) -> ToolOutput:
        return ToolOutput(blocks=[TextBlock(text=f"the token is {self.secrets['token']}")])
    """,
)


@pytest.fixture(scope="module")
def quiz_url() -> Iterator[str]:
    with serving(Server([Quiz])) as address:
        yield address


def played(folder: Path) -> list[tuple[str | None, int | None, int]]:
    """The episodes of a run, in order of their tasks."""
    return sorted((e.task.split, e.task.index, e.sample) for e in read_run(folder).entries)


def test_a_target_is_served_played_and_reported(tmp_path: Path) -> None:
    how = ["--split", "train", "--split", "test", "--tasks", "0:3", "--samples", "2", "--reward", "last"]
    done = run("eval", QUIZ, "--model", "gold", *how, "--out", "run", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "12 episodes of 6 tasks" in done.out
    assert "mean reward: 1" in done.out
    assert re.search(r"^2 +1 +1 +6$", done.out, re.MULTILINE)  # K, PASS@K, PASS^K, TASKS
    assert "reward of an episode: last of the rewards of its steps" in done.out
    assert re.search(r"^test/2 ", done.out, re.MULTILINE)
    tasks = [(split, index) for split in ("test", "train") for index in range(3)]
    assert played(tmp_path / "run") == [(*task, sample) for task in tasks for sample in range(2)]
    (first, *_) = read_run(tmp_path / "run").episodes()
    assert (first.outcome, first.reward, first.rewards) == (Scored(), 1.0, (0.25, 1.0))


def test_a_finding_is_said_while_it_plays_and_in_the_report(quiz_url: str, tmp_path: Path) -> None:
    constant = tmp_path / "constant.py"
    constant.write_text(
        "from ors.client import ToolInvocation\n"
        "from ors.rollouts import AgentMessage\n"
        "class Constant:\n"
        "    async def reply(self, conversation, tools):\n"
        '        return AgentMessage(calls=(ToolInvocation("submit", {"answer": -1}),))\n'
        "agent = Constant()\n"
    )
    how = [
        "eval",
        quiz_url,
        "--env",
        "quiz",
        "--model",
        "constant:agent",
        "--tasks",
        "0:4",
        "--samples",
        "16",
    ]
    done = run(*how, "--out", "run", cwd=tmp_path)
    lines = [line for line in done.err.splitlines() if line.startswith("Finding: All ")]
    assert len(lines) == 1, done.err
    assert "earned 0, so no group has any variance. They give no gradient" in lines[0]
    assert "finding: All 64 episodes earned 0" in done.out
    told = run(*how, "--out", "run2", "--json", cwd=tmp_path)
    assert "Finding" not in told.err
    assert [each["kind"] for each in told.json["findings"]] == ["no_variance"]


def test_the_reduction_has_a_default_that_is_said(quiz_url: str, tmp_path: Path) -> None:
    done = run("eval", quiz_url, "--model", "replay:gold", "--tasks", "0", "--out", "again", cwd=tmp_path)
    assert done.code == 2
    assert "gold is not a run" in done.err
    assert run("eval", QUIZ, "--model", "gold", "--tasks", "0", "--out", "gold", cwd=tmp_path).code == 0
    done = run("eval", quiz_url, "--model", "replay:gold", "--tasks", "0", "--out", "again", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "reward of an episode: sum of the rewards of its steps" in done.out
    assert "mean reward: 1.25" in done.out


async def test_a_model_plays_and_its_tokens_are_counted(quiz_url: str, tmp_path: Path) -> None:
    chat = ChatAnswers()
    async with providing(chat) as provider:
        right = chat("So it is.", [("call_1", "submit", '{"answer": 7}')])
        wrong = chat("", [("call_1", "submit", '{"answer": "seven"}')])
        provider.on(chat.path, answer(wrong), answer(right))
        prices = ["--prices", '{"input": 1, "output": 10, "cached": 0.5}']
        how = ["--base-url", provider.url + chat.prefix, "--tasks", "1", "--temperature", "0.5", *prices]
        words = ["eval", quiz_url, "--model", "openai:some-model", *how, "--out", "run", "--json"]
        done = await asyncio.to_thread(run, *words, cwd=tmp_path, env={"OPENAI_API_KEY": KEY})
        assert done.code == 0, done.err
        assert provider.body()["temperature"] == 0.5
        assert provider.requests[0].headers["authorization"] == f"Bearer {KEY}"
    found = done.json
    assert (found["episodes"], found["reward"]["mean"]) == (1, 1.0)
    assert found["usage"]["input_tokens"] == 2000
    # Of each request, 200 new tokens, 800 cached ones and 100 of output.
    assert found["usage"]["cost"] == pytest.approx(2 * (200 + 400 + 1000) / 1e6)
    (record,) = read_run(tmp_path / "run").episodes()
    assert [message.role for message in record.messages] == ["user", "assistant", "tool", "assistant", "tool"]
    texts = [path.read_text() for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert KEY not in "".join(texts)


async def test_a_provider_that_hangs_is_given_up_after_the_time_that_was_asked_for(
    quiz_url: str, tmp_path: Path
) -> None:
    chat = ChatAnswers()
    async with providing(chat) as provider:
        provider.on(chat.path, *[Reply(b"", hold=asyncio.Event())] * 2)
        how = [
            "--base-url",
            provider.url + chat.prefix,
            "--model-options",
            '{"request_seconds": 2, "retries": 1}',
        ]
        words = ["eval", quiz_url, "--model", "openai:some-model", *how, "--tasks", "1", "--out", "run"]
        await asyncio.to_thread(run, *words, cwd=tmp_path, env={"OPENAI_API_KEY": KEY})
        assert len(provider.requests) == 2
    (record,) = read_run(tmp_path / "run").episodes()
    assert isinstance(record.outcome, Failed)
    assert (record.outcome.who, record.outcome.stage) == ("model", "model")
    assert "within 2 s" in record.outcome.message


def test_a_mean_below_the_bound_is_a_fault(quiz_url: str, tmp_path: Path) -> None:
    how = ["--model", "noop", "--tasks", "0:2", "--out", "run", "--fail-under", "0.5"]
    done = run("eval", quiz_url, *how, cwd=tmp_path)
    assert done.code == 1
    assert "the mean reward is 0, and --fail-under is 0.5" in done.err
    assert "outcomes: unscored 2" in done.out


def test_a_broken_environment_is_told_apart_from_infrastructure(quiz_url: str, tmp_path: Path) -> None:
    how = ["--split", "broken", "--tasks", "0", "--out", "run", "--json"]
    done = run("eval", quiz_url, "--model", "noop", *how, cwd=tmp_path)
    assert done.code == 3, done.err
    assert [(each["who"], each["stage"]) for each in done.json["failures"]] == [("environment", "opening")]
    assert done.json["reward"] is None


async def test_too_many_failures_of_infrastructure_are_exit_code_3(tmp_path: Path) -> None:
    """The server dies in the middle of the run; a resumed run plays just what is missing."""
    how = ["--model", "scripted:Slow", "--tasks", "0:4", "--retries", "0", "--out", "run"]
    (tmp_path / "scripted.py").write_text(SLOW)
    env = {"PYTHONPATH": str(tmp_path)}
    with running("serve", QUIZ, "--port", "0", "--json") as serve:
        url = json.loads(serve.line(r"\{.*").group())["url"]
        with running("eval", url, *how, cwd=tmp_path, env=env) as command:
            _wait_for(tmp_path / "run" / "episodes.jsonl", 1)
            _wait_for(tmp_path / "begun", 4)
            serve.process.kill()
            serve.process.wait()
            with running("serve", QUIZ, "--port", url.rpartition(":")[2], "--json") as again:
                again.line(r"\{.*")
                (tmp_path / "dead").touch()
                _, err = await asyncio.to_thread(command.process.communicate, timeout=40)
    assert command.process.returncode == 3, err
    assert "3 of 4 episodes failed (infrastructure 3); to try them again: ors eval --resume run" in err
    before = read_run(tmp_path / "run")
    assert sum(isinstance(entry.outcome, Failed) for entry in before.entries) == 3
    resumed = run("eval", QUIZ, "--resume", "run", cwd=tmp_path, env=env)
    assert resumed.code == 0, resumed.err
    after = read_run(tmp_path / "run")
    assert [entry.outcome for entry in after.entries] == [Scored()] * 4
    assert len((tmp_path / "run" / "episodes.jsonl").read_text().splitlines()) == 4 + 3


SLOW = """
import asyncio
from pathlib import Path
from ors.client import ToolInvocation
from ors.rollouts import AgentMessage

class Slow:
    '''Task 0 is played at once; the others wait for a file "dead".'''

    async def reply(self, conversation, tools):
        index = conversation.task.index
        with Path("begun").open("a") as file:
            file.write(f"{index}\\n")
        while index and not Path("dead").exists():
            await asyncio.sleep(0.01)
        return AgentMessage(calls=(ToolInvocation("submit", {"answer": 7 * index}, "call_1"),))
"""


def _wait_for(path: Path, lines: int) -> None:
    wait_until(
        lambda: path.is_file() and len(path.read_text().splitlines()) >= lines, f"{lines} lines of {path}"
    )


def test_ctrl_c_keeps_what_was_played_and_says_how_to_go_on(tmp_path: Path) -> None:
    env = {"QUIZ_SECONDS": "0.2"}
    how = ["--model", "gold", "--concurrency", "2", "--out", "run"]
    with running("eval", QUIZ, *how, cwd=tmp_path, env=env) as command:
        _wait_for(tmp_path / "run" / "episodes.jsonl", 2)
        done = command.stop(signal.SIGINT)
    assert done.code == 130
    assert "Interrupted. To continue: ors eval --resume run" in done.err
    some = len(read_run(tmp_path / "run").entries)
    assert 2 <= some < 30
    done = run("eval", "--resume", "run", "--concurrency", "30", cwd=tmp_path)
    assert done.code == 0, done.err
    assert played(tmp_path / "run") == [("train", index, 0) for index in range(30)]


def test_ctrl_c_before_the_first_episode_is_told(tmp_path: Path) -> None:
    code = "import pathlib, time\npathlib.Path('begun').write_text('1\\n')\ntime.sleep(60)"
    (tmp_path / "slow.py").write_text(code)
    with running("eval", "slow.py", "--model", "random", cwd=tmp_path) as command:
        _wait_for(tmp_path / "begun", 1)
        done = command.stop(signal.SIGINT)
    assert (done.code, done.err.splitlines()[-1]) == (130, "Interrupted.")


@pytest.mark.parametrize(
    ("indices", "told"),
    [
        ("90:100", "--tasks 90:100 selects no task: train has 30 tasks, counted from 0"),
        ("5:5", "--tasks 5:5 selects no task: train has 30 tasks"),
        ("30", "There is no task 30 in train, which has 30 tasks"),
    ],
)
def test_indices_beyond_the_split_are_told_with_its_size(quiz_url: str, indices: str, told: str) -> None:
    done = refused("eval", quiz_url, "--model", "noop", "--tasks", indices)
    assert (done.code, told in done.err) == (2, True), done.err


@pytest.mark.parametrize("flag", ["--sample", "--limi", "--sampl", "--spli"])
def test_options_have_one_name_and_no_abbreviations(quiz_url: str, flag: str) -> None:
    done = refused("eval", quiz_url, "--model", "noop", flag, "1")
    assert (done.code, f"No such option '{flag}'" in done.err) == (2, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stopped_run_leaves_no_session(quiz_url: str, tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "scripted.py").write_text(SLOW)
    how = ["--model", "scripted:Slow", "--tasks", "1:4", "--out", "run"]
    with running("eval", quiz_url, *how, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}) as command:
        _wait_for(tmp_path / "begun", 3)
        assert len(sessions(quiz_url)) == 3
        done = command.stop(number)
    assert done.code == 130
    assert "Interrupted. To continue: ors eval --resume run" in done.err
    assert sessions(quiz_url) == []


def sessions(url: str) -> list[Any]:
    with urllib.request.urlopen(f"{url}/-/sessions") as answered:
        found: list[Any] = json.load(answered)["sessions"]
    return found


def test_a_terminal_shows_a_table_while_it_runs(quiz_url: str, tmp_path: Path) -> None:
    terminal = Terminal(
        "eval", quiz_url, "--model", "random", "--max-turns", "30", "--out", "run", cwd=tmp_path
    )
    assert "done" in terminal.until("of 30")
    terminal.until("mean reward")
    code, rest = terminal.end()
    assert code == 0
    assert "30 episodes of 30 tasks" in rest


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Give a URL or TARGET and --model AGENT, or --resume FOLDER"),
        ([QUIZ], "Give a URL or TARGET and --model AGENT"),
        ([QUIZ, "--model", "opnai:gpt"], "Did you mean openai:gpt?"),
        ([QUIZ, "--model", "openai:gpt"], "set OPENAI_API_KEY"),
        ([QUIZ, "--model", "noop", "--temperature", "1"], "noop has no option 'temperature'"),
        ([QUIZ, "--model", "noop", "--tasks", "1:x"], "--tasks '1:x' is not valid: give indices like"),
        ([QUIZ, "--model", "noop", "--tasks", "99"], "There is no task 99 in train, which has 30 tasks"),
        ([QUIZ, "--model", "noop", "--split", "tests"], "There is no split 'tests'. Splits: train, test"),
        ([QUIZ, "--model", "noop", "--max-cost", "1"], "--max-cost needs prices"),
        ([QUIZ, "--model", "noop", "--prices", '{"input": 1}'], "--prices has no prices of noop"),
        ([QUIZ, "--model", "openai:gpt", "--model-options", '{"api_key": "sk-1"}'], "run.json keeps"),
        (["http://127.0.0.1:9", "--model", "gold"], "The gold agent needs a TARGET"),
        (["--resume", "nowhere"], "nowhere is not a run"),
        ([QUIZ, "--model", "noop", "--retry", "model"], "--retry works only with --resume FOLDER"),
        (["--resume", "nowhere", "--samples", "2"], "--resume uses the options of the run"),
    ],
)
def test_wrong_usage_is_said_in_one_line(words: list[str], said: str, tmp_path: Path) -> None:
    done = run("eval", *words, cwd=tmp_path, env={"OPENAI_API_KEY": ""})
    assert done.code == 2, done.err
    assert said in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not list(tmp_path.rglob("run.json"))


@pytest.mark.parametrize(
    "flag", ["--max-seconds", "--fail-under", "--max-failed", "--truncated-reward", "--unscored-reward"]
)
def test_a_number_that_is_none_is_refused(flag: str) -> None:
    done = refused("eval", QUIZ, "--model", "noop", flag, "nan")
    assert done.code == 2, done.err
    assert "nan is not a finite number" in done.err


def test_a_tool_called_solve_is_no_solution(tmp_path: Path) -> None:
    (tmp_path / "riddle.py").write_text(RIDDLE)
    done = run("eval", "riddle.py", "--model", "gold", "--out", "run", cwd=tmp_path)
    assert done.code == 2, done.err
    assert "Riddle has no classmethod solve(task_spec)" in done.err


RIDDLE = """
from ors import Environment, TextBlock, ToolOutput, tool

class Riddle(Environment):
    @classmethod
    def list_splits(cls):
        return ["train"]

    @classmethod
    def list_tasks(cls, split):
        return [{}]

    def get_prompt(self):
        return [TextBlock(text="Solve it.")]

    @tool
    def solve(self) -> ToolOutput:
        'Solve it.'
        return ToolOutput(blocks=[], reward=1.0, finished=True)
"""


def test_logins_of_urls_are_not_kept(quiz_url: str, tmp_path: Path) -> None:
    url = quiz_url.replace("://", "://me:the-password@")
    how = ["--base-url", "http://me:the-password@127.0.0.1:9/v1", "--model", "openai:some-model"]
    limits = ["--tasks", "0", "--max-seconds", "0.1"]
    done = run("eval", url, *how, *limits, "--out", "run", "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    texts = [path.read_text() for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert "the-password" not in "".join([*texts, done.out, done.err])
    assert done.json["config"]["base_url"] == "http://127.0.0.1:9/v1"
    assert done.json["config"]["target"] == quiz_url


def test_a_full_disk_is_said_with_how_to_go_on(quiz_url: str, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "ors", "eval", quiz_url, "--model", "noop", "--out", "run"]
    full = "ulimit -f 8; exec " + shlex.join(words)  # no file grows beyond 8 kB
    done = subprocess.run(
        ["bash", "-c", full], cwd=tmp_path, capture_output=True, text=True, timeout=40, check=False
    )
    assert done.returncode == 3, done.stderr
    assert "File too large: run; to continue later: ors eval --resume run" in done.stderr
    assert 0 < len(read_run(tmp_path / "run").entries) < 30
    assert run("eval", "--resume", "run", cwd=tmp_path).code == 0
    assert played(tmp_path / "run") == [("train", index, 0) for index in range(30)]


def test_a_folder_that_cannot_be_made_is_wrong_usage(quiz_url: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run("eval", quiz_url, "--model", "noop", "--out", "file/run", cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert "Not a directory: file/run" in done.err


SPENDER = """
import asyncio, os, pathlib
from ors.client import ToolInvocation
from ors.rollouts import AgentMessage, Usage

class Spender:
    async def reply(self, conversation, tools):
        while conversation.task.index == 3 and not pathlib.Path("go").exists():
            await asyncio.sleep(0.02)
        answer = {"answer": 7 * conversation.task.index}
        return AgentMessage(calls=(ToolInvocation("submit", answer),), usage=Usage(60, 40))

agent = Spender()
"""


def test_a_run_stops_at_its_limit_of_tokens_and_is_resumed_with_a_higher_one(
    quiz_url: str, tmp_path: Path
) -> None:
    (tmp_path / "spender.py").write_text(SPENDER)
    (tmp_path / "go").touch()
    how = ["--model", "spender:agent", "--tasks", "0:12", "--concurrency", "1", "--out", "run"]
    done = run("eval", quiz_url, "--env", "quiz", *how, "--max-total-tokens", "500", cwd=tmp_path)
    assert done.code == 3
    said = "Error: Stopped at 500 of 500 tokens, the limit of the run; raise --max-total-tokens."
    assert f"{said} To continue: ors eval --resume run" in done.err
    assert played(tmp_path / "run") == [("train", index, 0) for index in range(5)]
    again = run("eval", "--resume", "run", "--max-total-tokens", "500", cwd=tmp_path)
    assert (again.code, "Stopped at 500 of 500 tokens" in again.err) == (3, True)
    assert len(played(tmp_path / "run")) == 5
    assert run("eval", "--resume", "run", "--max-total-tokens", "9999", cwd=tmp_path).code == 0
    assert len(played(tmp_path / "run")) == 12


def test_a_run_stops_after_its_time_and_is_resumed(quiz_url: str, tmp_path: Path) -> None:
    (tmp_path / "spender.py").write_text(SPENDER)
    how = ["--model", "spender:agent", "--tasks", "0:6", "--out", "run", "--max-total-seconds", "0.5"]
    done = run("eval", quiz_url, "--env", "quiz", *how, cwd=tmp_path)
    assert done.code == 3
    assert "Stopped after 0.5 s, the limit of the run (--max-total-seconds). To continue: " in done.err
    assert ("train", 3, 0) not in played(tmp_path / "run")
    (tmp_path / "go").touch()
    assert run("eval", "--resume", "run", cwd=tmp_path).code == 0
    assert len(played(tmp_path / "run")) == 6


def test_the_table_shows_stage_and_age_of_what_runs() -> None:
    running = [
        RunningEpisode("a", TaskRef("quiz", "train", 7), 0, "model", 2, 41.2),
        RunningEpisode("b", TaskRef("quiz", "train", 8), 0, "call", 1, 9.0),
        RunningEpisode("c", TaskRef("quiz", "train", 9), 0, "model", 0, 0.1),
    ]
    tally = EvalTally(3, running=lambda: running)
    assert dict(rows(tally, 0.0))["running"] == "2 model, 1 call (the oldest: 41 s, train/7)"
    assert dict(rows(EvalTally(3), 0.0))["running"] == "0"


def test_a_line_without_a_terminal_shows_what_runs(quiz_url: str, tmp_path: Path) -> None:
    (tmp_path / "spender.py").write_text(SPENDER)
    how = ["--model", "spender:agent", "--tasks", "3", "--out", "run"]
    with running("eval", quiz_url, "--env", "quiz", *how, cwd=tmp_path) as command:
        assert command.errors(r"running 1 model \(the oldest: \d+ s, train/3\)")
        (tmp_path / "go").touch()
        command.process.wait(timeout=40)


def test_the_counts_can_be_shown_while_episodes_end() -> None:
    """The table is drawn by another thread: here, an episode ends in the middle of its work."""
    tally = EvalTally(3)

    class Interrupted(list[float]):
        def __len__(self) -> int:
            tally.add(episode(len(tally.rewards)))
            return super().__len__()

    tally.add(episode(0))
    task = next(iter(tally.rewards))
    tally.rewards[task] = Interrupted([1.0])
    assert dict(rows(tally, 0.0))["mean reward"] == "1"
    assert len(tally.rewards) > 1


def test_a_resumed_run_says_that_the_environment_has_other_tasks_now(tmp_path: Path) -> None:
    target = tmp_path / "riddle.py"
    target.write_text(RIDDLE.replace("[{}]", "[{}] * 3"))
    assert run("eval", "riddle.py", "--model", "noop", "--out", "run", cwd=tmp_path).code == 0
    assert run("eval", "--resume", "run", cwd=tmp_path).err == ""
    target.write_text(RIDDLE)
    done = run("eval", "--resume", "run", "--allow-changed", cwd=tmp_path)
    assert done.code == 0
    assert "Warning: 2 episodes of the run belong to tasks that are no longer selected" in done.err


def test_a_folder_with_a_run_is_not_written_to(quiz_url: str, tmp_path: Path) -> None:
    words = ["eval", quiz_url, "--model", "noop", "--tasks", "0", "--out", "run"]
    assert run(*words, cwd=tmp_path).code == 0
    done = run(*words, cwd=tmp_path)
    assert done.code == 2
    assert "already has a run" in done.err


def test_a_random_sample_of_tasks_is_the_same_for_the_same_seed(quiz_url: str, tmp_path: Path) -> None:
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        how = ["--model", "noop", "--limit", "5", "--seed", seed, "--out", name]
        assert run("eval", quiz_url, *how, cwd=tmp_path).code == 0
    a, b, c = (played(tmp_path / name) for name in "abc")
    assert a == b != c
    assert len(a) == 5


def test_a_resumed_run_needs_its_secrets_again_and_keeps_none(quiz_url: str, tmp_path: Path) -> None:
    words = ["eval", quiz_url, "--model", "noop", "--tasks", "0", "--out", "run"]
    assert run(*words, "--secret", "token=very-secret", cwd=tmp_path).code == 0
    assert "very-secret" not in (tmp_path / "run" / "run.json").read_text()
    done = run("eval", "--resume", "run", cwd=tmp_path)
    assert done.code == 2
    assert "needs the secret token: pass --secret token=VALUE" in done.err
    assert run("eval", "--resume", "run", "--secret", "token=very-secret", cwd=tmp_path).code == 0


async def test_neither_secrets_nor_the_providers_key_are_recorded_or_printed(
    tmp_path: Path,
) -> None:
    (tmp_path / "leak.py").write_text(LEAK)
    chat = ChatAnswers()
    half = f"{KEY[:7]}***{KEY[-4:]}"
    async with providing(chat) as provider:
        told = answer(chat(f"My key is {KEY}", [("call_1", "tell", "{}")]))
        refused = answer({"error": {"message": f"{half} may not go on"}}, 403)
        provider.on(chat.path, told, refused)
        how = ["--base-url", provider.url + chat.prefix, "--secret", "token=very-secret", "--out", "run"]
        words = ["eval", "leak.py", "--model", "openai:some-model", *how]
        env = {"OPENAI_API_KEY": KEY, "ORS_SERVE_LOG_LEVEL": "debug"}
        done = await asyncio.to_thread(run, *words, cwd=tmp_path, env=env)
        shown = await asyncio.to_thread(run, "runs", "show", "run", "0", cwd=tmp_path)
    assert "may not go on" in done.out
    texts = [path.read_text() for path in (tmp_path / "run").rglob("*") if path.is_file()]
    for text in (*texts, done.out, done.err, shown.out):
        assert "very-secret" not in text
        assert KEY[:7] not in text
        assert KEY[-4:] not in text
    assert "the token is ***" in shown.out
    assert "My key is ***" in shown.out


def test_a_secret_that_an_environment_requires_is_asked_for_before_anything_is_played(tmp_path: Path) -> None:
    words = ["eval", f"{SUPPORT / 'keyed_environment.py'}:Keyed", "--model", "noop", "--out", "run"]
    done = run(*words, cwd=tmp_path)
    assert (done.code, (tmp_path / "run").exists()) == (2, False)
    assert "needs the secret judge_key: pass --secret judge_key=VALUE" in done.err
    assert run(*words, cwd=tmp_path, env={"JUDGE_KEY": "very-secret"}).code == 0
    assert "very-secret" not in (tmp_path / "run" / "run.json").read_text()
    assert run("eval", "--resume", "run", cwd=tmp_path).code == 2
    assert run("eval", "--resume", "run", cwd=tmp_path, env={"JUDGE_KEY": "very-secret"}).code == 0


def test_the_default_folder_names_environment_and_agent(quiz_url: str, tmp_path: Path) -> None:
    assert run("eval", quiz_url, "--model", "noop", "--tasks", "0", cwd=tmp_path).code == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert re.fullmatch(r"127\.0\.0-noop-\d{8}-\d{6}|.*-noop-\d{8}-\d{6}", folder.name)


def test_the_client_has_no_session_left_after_a_run(quiz_url: str, tmp_path: Path) -> None:
    assert (
        run("eval", quiz_url, "--model", "random", "--max-turns", "3", "--out", "run", cwd=tmp_path).code == 0
    )
    assert sessions(quiz_url) == []
    with ORS(quiz_url) as client:
        assert client.list_environments() == ["quiz"]
