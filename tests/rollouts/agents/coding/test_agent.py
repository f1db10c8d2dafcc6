"""Coding agents, played by a pretender that behaves as its model is named."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ors import Environment, Server
from ors.client import AsyncORS
from ors.rollouts import EpisodeLimits, EpisodeRecord, Failed, Scored, Truncated, Unscored, Usage, rollouts
from ors.rollouts.agents import Prices, resolve
from ors.rollouts.records import RunInfo, RunWriter, read_run
from tests.support import workshop_environment
from tests.support.coding_agents import command, for_sandboxes, on_path, pretender
from tests.support.commands import refused, running
from tests.support.hunt_environment import HINT, RIGHT, Essay, Hunt
from tests.support.live_server import serving
from tests.support.scripted_model import scripted_model
from tests.support.waiting import wait_until
from tests.support.workshop_environment import Closed, Workshop, sandbox

KEY = "sk-a-secret-of-the-user"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(Server([Hunt, Essay])) as found:
        yield found


@pytest.fixture(autouse=True)
def _pretender(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", on_path(pretender(tmp_path / "bin")))
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("SECRET_OF_THE_USER", "hidden")


def played(
    url: str, how: str, cls: type[Environment] = Hunt, base_url: str = "http://127.0.0.1:9", **rules: Any
) -> EpisodeRecord:
    async def play() -> EpisodeRecord:
        agent: Any = resolve(f"claude-code:{how}", base_url=base_url)
        async with AsyncORS(url) as client:
            env = client.environment(cls.name())
            try:
                records = rollouts(env, [("train", 0)], agent, **{"reward": "sum", **rules})
                return await anext(records)
            finally:
                await agent.close()

    return asyncio.run(play())


def program_of(record: EpisodeRecord) -> Any:
    return record.program


def is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_the_calls_of_a_program_are_an_episode(url: str) -> None:
    record = played(url, "plays")
    assert record.outcome == Scored()
    assert record.rewards == (HINT, RIGHT)
    assert record.reward == HINT + RIGHT
    assert [message.role for message in record.messages] == ["user", *["assistant", "tool"] * 2, "assistant"]
    assert record.messages[-1].text == "All done."  # type: ignore[union-attr]
    assert record.usage == Usage(120, 7, 20)
    assert program_of(record)["exit"] == 0
    assert "All done." in program_of(record)["output"]


def test_a_program_that_leaves_has_given_up(url: str) -> None:
    record = played(url, "answers")
    assert record.outcome == Unscored()
    assert record.usage == Usage(120, 7, 20)


def test_the_last_words_of_a_program_are_graded(url: str) -> None:
    record = played(url, "answers", Essay)
    assert record.outcome == Scored()
    assert record.reward == RIGHT
    assert record.usage == Usage(120, 7, 20)


def test_the_only_tool_of_an_environment_is_a_tool_also_if_it_takes_the_last_message(url: str) -> None:
    record = played(url, "hands-in", Essay)
    assert [message.role for message in record.messages] == ["user", "assistant", "tool", "assistant"]
    assert record.rewards == (RIGHT,)
    assert [tool.name for tool in record.tools] == ["grade"]
    said = record.messages[-1].text  # type: ignore[union-attr]
    assert json.loads(said)[0] == "grade"
    assert "episode is over" in said


def test_the_system_prompt_and_the_prompt_are_the_task(url: str) -> None:
    record = played(url, "tells-its-task", system="Be brief.")
    assert record.messages[-1].text == "Be brief.\n\nCall hint, then submit what it says."  # type: ignore[union-attr]


def test_a_program_that_fails_is_a_failure_of_the_agent_and_shows_no_key(url: str) -> None:
    record = played(url, "exits-1")
    assert isinstance(record.outcome, Failed)
    assert (record.outcome.who, record.outcome.error) == ("agent", "AgentFailed")
    assert record.outcome.message.startswith("claude-code exited with 1: something broke")
    assert program_of(record)["exit"] == 1
    assert "something broke" in program_of(record)["errors"]
    assert KEY not in repr(record)


def test_a_model_that_fails_is_a_failure_of_the_model(url: str) -> None:
    outcome = played(url, "loses-its-model").outcome
    assert isinstance(outcome, Failed)
    assert (outcome.who, outcome.final) == ("model", True)
    assert "401" in outcome.message


@pytest.mark.long
@pytest.mark.parametrize("how", ["hangs", "hangs-in-a-call", "ignores-sigterm"])
def test_a_program_that_hangs_is_ended_when_time_is_up(url: str, how: str) -> None:
    record = played(url, how, limits=EpisodeLimits(seconds=3))
    assert isinstance(record.outcome, Truncated)
    assert record.outcome.limit == "seconds"
    assert program_of(record)["exit"] == -9
    assert record.usage == Usage(unknown=1)


def test_what_a_program_has_started_ends_with_the_episode(url: str) -> None:
    record = played(url, "forks")
    assert record.outcome == Scored()
    assert not is_running(int(program_of(record)["output"].split()[0]))


def test_a_program_gets_nothing_of_ours_but_its_key(url: str) -> None:
    record = played(url, "shows-variables")
    shown = json.loads(record.messages[-1].text)  # type: ignore[union-attr]
    assert shown["folder"] == []
    assert "SECRET_OF_THE_USER" not in shown["variables"]
    assert "ANTHROPIC_API_KEY" in shown["variables"]
    assert not any(KEY in word or "/mcp/" in word for word in shown["words"])


@pytest.mark.long
def test_a_program_that_prints_endlessly_is_ended_and_little_of_it_is_kept(url: str) -> None:
    record = played(url, "prints-endlessly", limits=EpisodeLimits(seconds=3))
    assert isinstance(record.outcome, Truncated)
    assert 0 < len(program_of(record)["output"]) <= 16_000


def test_a_command_that_cannot_be_run_is_a_failure_of_the_agent(url: str, tmp_path: Path) -> None:
    command(tmp_path / "bin", "#!/no/such/interpreter\n")
    outcome = played(url, "plays").outcome
    assert isinstance(outcome, Failed)
    assert (outcome.who, outcome.stage, outcome.error) == ("agent", "model", "AgentFailed")
    assert outcome.message.startswith("claude-code exited with 127: ")


def test_a_missing_program_is_named_with_the_way_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(ValueError, match=r"'codex', which is not on the PATH.*npm install -g @openai/codex"):
        resolve("codex:some", base_url="http://127.0.0.1:9")


def test_nothing_is_left_behind(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "left"))
    (tmp_path / "left").mkdir()
    played(url, "plays")
    assert list((tmp_path / "left").iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_evaluation_leaves_no_program_behind(
    url: str, tmp_path: Path, number: signal.Signals
) -> None:
    pid = tmp_path / "bin" / "pid"
    words = ["--env", Hunt.name(), "--model", "claude-code:hangs", "--base-url", "http://127.0.0.1:9"]
    with running("eval", url, *words, "--tasks", "0", "--out", str(tmp_path / "run")) as evaluation:
        wait_until(lambda: pid.exists() and pid.read_text(), "the program runs")
        assert is_running(int(pid.read_text()))
        assert evaluation.stop(number).code == (-9 if number == signal.SIGKILL else 130)
    wait_until(lambda: not is_running(int(pid.read_text())), "the program has ended")


def test_episodes_at_the_same_time_do_not_meet(url: str) -> None:
    async def play() -> list[EpisodeRecord]:
        agent: Any = resolve("claude-code:plays", base_url="http://127.0.0.1:9")
        async with AsyncORS(url) as client:
            env = client.environment(Hunt.name())
            tasks = [("train", 0), ("train", 1)]
            records = [each async for each in rollouts(env, tasks, agent, samples=2, reward="sum")]
            await agent.close()
            return records

    assert [record.reward for record in asyncio.run(play())] == [HINT + RIGHT] * 4


def test_limits_that_cannot_be_kept_are_refused(url: str) -> None:
    done = refused("eval", url, "--model", "claude-code:plays", "--max-tokens", "1000")
    assert (done.code, "reports its tokens when it ends" in done.err) == (2, True)


def test_prices_make_costs(url: str) -> None:
    async def play() -> EpisodeRecord:
        agent: Any = resolve(
            "claude-code:plays", base_url="http://127.0.0.1:9", prices=Prices(input=1e6, output=1e6)
        )
        async with AsyncORS(url) as client:
            record = await anext(
                rollouts(client.environment(Hunt.name()), [("train", 0)], agent, reward="sum")
            )
            await agent.close()
            return record

    assert asyncio.run(play()).usage.cost == 127


def test_records_keep_what_is_known_of_the_program(url: str, tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run", RunInfo()) as writer:
        writer.append(record := played(url, "plays"))
    (found,) = read_run(tmp_path / "run").episodes()
    assert found.program == record.program


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with the pretender that sandboxes can read."""
    with for_sandboxes() as made:
        yield pretender(made / "bin", "/usr/bin/python3")


@pytest.mark.parametrize("key", [KEY, ""])
def test_a_program_plays_in_the_sandbox_of_an_episode_that_takes_agents_and_sees_no_key(
    folder: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setattr(Workshop, "sandbox", sandbox(str(folder)))
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)
    with scripted_model([], status=401) as model, serving(Server([Workshop])) as url:
        record = played(url, "works", Workshop, base_url=model.url)
    assert record.rewards == (workshop_environment.RIGHT,)
    said, status = record.messages[-1].text.split()  # type: ignore[union-attr]
    assert (len(said), status) == (43, "401")
    assert model.keys == {key or "EMPTY"}
    assert [path for path, _ in model.requests] == ["/v1/messages"]
    assert record.usage == Usage(120, 7, 20)
    assert program_of(record)["exit"] == 0


def test_a_model_that_cannot_be_reached_is_told_to_a_program_in_a_sandbox(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Workshop, "sandbox", sandbox(str(folder)))
    with serving(Server([Workshop])) as url:
        record = played(url, "works", Workshop)
    assert record.messages[-1].text.split()[1] == "502"  # type: ignore[union-attr]


def test_a_program_in_a_sandbox_tells_what_it_said_until_time_is_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Workshop, "sandbox", sandbox(str(folder)))
    with serving(Server([Workshop])) as url:
        record = played(url, "ignores-sigterm", Workshop, limits=EpisodeLimits(seconds=2))
    assert isinstance(record.outcome, Truncated)
    assert program_of(record)["exit"] == -9
    assert int(program_of(record)["output"]) > 0


def test_a_program_that_a_sandbox_lacks_is_a_failure_of_the_agent() -> None:
    with serving(Server([Workshop])) as url:
        outcome = played(url, "works", Workshop).outcome
    assert isinstance(outcome, Failed)
    assert outcome.who == "agent"
    assert outcome.message.startswith("claude-code exited with 127: claude: command not found; the sandbox")


def test_an_environment_whose_sandbox_takes_no_agents_is_played_from_here(url: str) -> None:
    with serving(Server([Closed])) as closed:
        said = played(closed, "shows-variables", Closed).messages[-1].text  # type: ignore[union-attr]
    assert "--tools" in json.loads(said)["words"]
