"""The rollout log of openreward's own SDK, sent to our server."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from ors.rollouts import AgentMessage, EpisodeRecord, Failed, Scored, ToolMessage
from ors.rollouts.records import read_run
from ors.types import TextBlock
from tests.support import SUPPORT
from tests.support.commands import running
from tests.support.side_venvs import OPENREWARD, SCRIPTS, environ

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
LAB = f"{SUPPORT / 'environments.py'}:Lab"


def logged(folder: Path, *flags: str) -> dict[str, EpisodeRecord]:
    """What a script of the SDK has logged to a server of ours, by the name of its function."""
    with running(
        "serve", LAB, "--port", "0", "--record", str(folder), *flags, env={"ORS_API_KEYS": "team=s3cret"}
    ) as server:
        url = server.line(r"Serving on (http://\S+)")[1]
        variables = {"OPENREWARD_API_URL": url, "OPENREWARD_API_KEY": "s3cret"}
        variables |= {"OPENREWARD_DISABLE_UPDATE_CHECK": "1"}
        done = subprocess.run(
            [OPENREWARD.python(), str(SCRIPTS / "their_log.py")],
            env=environ(**variables),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        ids = json.loads(done.stdout.splitlines()[-1])
        ended = server.stop(signal.SIGTERM)
        assert ended.code == 0, ended
    runs = [read_run(folder / "rollouts" / name) for name in ("nightly", "long")]
    found = {record.id: record for run in runs for record in run.episodes()}
    assert len(found) == len(ids)
    return {name: found[id.replace("-", "")] for name, id in ids.items()}


@pytest.mark.xdist_group("compat")
@pytest.mark.parametrize("flags", [[], ["--workers", "2"]], ids=["alone", "workers"])
def test_what_their_sdk_logs_to_our_server_is_a_run_on_disk(tmp_path: Path, flags: list[str]) -> None:
    found = logged(tmp_path / "run", *flags)
    plain = found["plain"]
    assert (plain.outcome, plain.reward, plain.agent) == (Scored(), 1.0, "their-model")
    assert (plain.task.environment, plain.task.split, plain.task.index) == ("me/lab", "train", 3)
    assert plain.task.spec == {"n": 3}
    assert plain.metadata is not None
    assert (plain.metadata["rolloutName"], plain.metadata["metadata"]) == ("one", {"note": "n"})
    assert [message.role for message in plain.messages] == ["system", "user", "assistant", "tool"]
    agent, result = plain.messages[2:]
    assert isinstance(agent, AgentMessage)
    assert (agent.reasoning, agent.text, agent.calls[0].input) == ("An addition.", "I submit.", {"answer": 5})
    assert isinstance(result, ToolMessage)
    assert (result.name, result.metadata, result.finished) == ("submit", {"grader": "exact"}, True)
    assert isinstance(found["anthropic"].outcome, Failed)
    assert found["anthropic"].rewards == (0.5,)
    assert (found["responses"].outcome, found["responses"].reward) == (Scored(), 0.25)
    assert (found["google"].outcome, found["google"].reward) == (Scored(), 0.75)
    results = [each for each in found["completions"].messages if isinstance(each, ToolMessage)]
    counts = [block.text for each in results for block in each.blocks if isinstance(block, TextBlock)]
    assert counts == [str(number) for number in range(150)]
    assert found["completions"].rewards == (1.0,) * 150
