"""verifiers' own chat program, with our tools by its servers, and a model by a script."""

# ruff: noqa: F401, F811 - the model is a fixture

import asyncio
import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import verifiers.v1 as vf
from verifiers.v1.runtimes import SubprocessConfig
from verifiers.v1.runtimes.base import Runtime

from tests.adapters.trainers.check_verifiers import HINT, RIGHT, Model, Reply, model, scripted
from tests.support.outcome_cases import CASES, OPTIONS
from tests.support.training_environment import Hunt, hunt_elsewhere

pytestmark = pytest.mark.timeout(200)  # each starts three processes, one after the other


@pytest.fixture(autouse=True)
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The module by whose name verifiers finds the taskset; and its chat program in this interpreter."""
    text = "from ors.adapters.verifiers_tools import ORSToolTaskset\n__all__ = ['ORSToolTaskset']\n"
    (tmp_path / "ors_tools.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))

    async def prepared(self: Runtime, script: str, *_: Any, **__: Any) -> list[str]:
        (tmp_path / "program.py").write_text(
            script
        )  # uv would make an environment with what is installed here
        return [sys.executable, str(tmp_path / "program.py")]

    monkeypatch.setattr(Runtime, "prepare_uv_script", prepared)
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parents[3] / 'src'}")
    yield
    sys.modules.pop("ors_tools", None)


async def played(model: Model, url: str, script: Sequence[Reply], **options: Any) -> Any:
    """The trace of one episode, run by verifiers."""
    model.script = list(script)
    where = {"base_url": url, "environment": "hunt", "split": "train", "reward": "sum", **options}
    agent = {"runtime": SubprocessConfig().model_dump(), "harness": {"id": "null"}}
    config = vf.SingleAgentEnvConfig.model_validate({"taskset": {"id": "ors_tools", **where}, "agent": agent})
    env = vf.SingleAgentEnv(config)
    endpoint = f"http://127.0.0.1:{model.server_address[1]}/v1"
    client = vf.EvalClientConfig(base_url=endpoint, api_key_var="NO_KEY")
    task = next(itertools.islice(env.taskset, 3, None))
    async with env.serving():
        episode = await env.run_episode(task, vf.ModelContext(model="policy", client=client))
    assert len(episode.traces) == 1, episode.errors
    async with asyncio.timeout(20):  # the toolset's process closes its session when it ends
        while Hunt.count["open"]:
            await asyncio.sleep(0.02)
    return episode.traces[0]


async def test_secrets_come_from_variables(model: Model, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUNT_KEY", "sesame")
    trace = await played(model, url, [RIGHT], environment="locked", secrets=["hunt_key"])
    assert (trace.ok, trace.reward) == (True, 1.0), trace.last_error
    assert "sesame: guess 3." in json.dumps(model.requests[0]["messages"])


async def test_another_harness_plays_with_the_tools_and_finished_ends_the_episode(
    model: Model,
    url: str,
) -> None:
    trace = await played(model, url, [HINT, RIGHT, RIGHT])
    assert (trace.ok, trace.reward, trace.state.rewards) == (True, 1.25, [0.25, 1.0]), trace.last_error
    assert len(model.requests) == 2
    assert "Guess 3." in json.dumps(model.requests[0]["messages"])
    assert "guess" in {tool["function"]["name"] for tool in model.requests[0]["tools"]}


async def test_an_episode_that_fails_is_an_error_and_has_no_score(model: Model, url: str) -> None:
    trace = await played(model, url, [("crash", {}), RIGHT])
    assert not trace.ok
    assert not any(trace.rewards.values())
    assert "failed: environment, at the stage 'call'" in trace.last_error.message
    assert trace.metrics["ors/failed_environment"] == trace.metrics["ors/left_out"] == 1.0


async def test_a_server_that_is_killed_is_an_error(model: Model) -> None:
    with hunt_elsewhere() as (process, address):

        def kill(turn: int) -> None:
            if turn == 1:
                process.kill()
                process.wait()

        model.before_reply = kill
        trace = await played(model, address, [HINT, RIGHT, RIGHT])
    assert not trace.ok
    assert "infrastructure" in trace.last_error.message


async def test_a_model_that_stops_has_the_rewards_so_far(model: Model, url: str) -> None:
    trace = await played(model, url, [HINT, "I give up."])
    assert (trace.ok, trace.reward) == (True, 0.25), trace.last_error


@pytest.mark.parametrize("name", ["gave up", "cut off"])
async def test_outcomes_count_as_the_table_says(model: Model, url: str, name: str) -> None:
    (case,) = [each for each in CASES if each.name == name]  # each takes ten seconds, so not all
    trace = await played(model, url, scripted(case), **OPTIONS)
    assert (trace.ok, trace.reward) == (True, case.chosen), trace.last_error


async def test_a_nudge_that_nobody_would_send_is_refused(model: Model, url: str) -> None:
    with pytest.raises(ValueError, match="cannot send a nudge: use ORSHarness"):
        await played(model, url, [], nudge="Go on.")


async def test_an_environment_that_scores_the_last_message_is_refused(model: Model, url: str) -> None:
    with pytest.raises(ValueError, match="use ORSHarness"):
        await played(model, url, [], environment="essay")


async def test_metrics_have_the_named_rewards(model: Model, url: str) -> None:
    trace = await played(model, url, [HINT, RIGHT], environment="parts")
    assert (trace.reward, trace.metrics["ors/reward/correct"]) == (1.75, 1.0), trace.last_error
    assert trace.metrics["ors/reward/format"] == 0.75
