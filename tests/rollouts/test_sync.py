"""The same from sync code."""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from ors.client import ORS, Task
from ors.rollouts import AgentMessage, Failed, Scored, Unscored, play_sync, rollouts_sync
from ors.rollouts.tasks import GivenTask
from tests.support.raw_http import Raw
from tests.support.scripted_agents import WIN, Script, Thinker


@pytest.fixture
def client(raw: Raw) -> Iterator[ORS]:
    with ORS(raw.url) as made:
        yield made


def open_sessions(raw: Raw) -> int:
    total: int = raw.get("/-/sessions?environment=lab").json()["total"]
    return total


def until_none_is_open(raw: Raw) -> None:
    for _ in range(400):
        if open_sessions(raw) == 0:
            return
        threading.Event().wait(0.05)
    raise AssertionError("sessions are left")


def test_an_episode_is_played_from_sync_code(client: ORS, raw: Raw) -> None:
    session = client.environment("lab").session(split="train", index=3)
    record = play_sync(session, Script(WIN), reward="last", sample=2)
    assert (record.outcome, record.reward, record.sample, record.task.index) == (Scored(), 1.0, 2, 3)
    assert open_sessions(raw) == 0


def test_many_episodes_are_played_from_sync_code_with_tasks_of_the_sync_client(client: ORS) -> None:
    env = client.environment("lab")
    records = rollouts_sync(env, env.tasks("train", page_size=2), Script(WIN), samples=2, reward="sum")
    assert [record.outcome for record in records] == [Scored()] * 10


def test_failures_are_outcomes_in_sync_code_too(client: ORS) -> None:
    tasks = [Task("lab", {"fail": "setup"}), Task("lab", {})]
    records = list(
        rollouts_sync(client.environment("lab"), tasks, Script(AgentMessage("done")), reward="sum")
    )
    assert {type(record.outcome) for record in records} == {Failed, Unscored}


def test_leaving_the_loop_ends_all_sessions(client: ORS, raw: Raw) -> None:
    def endless() -> Iterator[GivenTask]:
        while True:
            yield "train", 0

    records = rollouts_sync(client.environment("lab"), endless(), Script(WIN), concurrency=8, reward="sum")
    for number, _ in enumerate(records):
        if number == 20:
            break
    records.close()  # type: ignore[attr-defined]
    assert open_sessions(raw) == 0


def test_closing_the_client_in_the_middle_ends_all_sessions(raw: Raw) -> None:
    client = ORS(raw.url)
    thinker = Thinker(1)
    records = rollouts_sync(client.environment("lab"), [("train", 0)] * 5, thinker, reward="sum")
    next(records)
    while open_sessions(raw) < 4:
        threading.Event().wait(0.01)
    client.close()
    del records
    until_none_is_open(raw)


def test_wrong_arguments_are_refused_at_once(client: ORS) -> None:
    with pytest.raises(ValueError, match="reward reduction"):
        rollouts_sync(client.environment("lab"), [], Script(WIN), reward="mean")  # type: ignore[arg-type]


SCRIPT = """
import asyncio, sys
from ors.client import ORS
from ors.rollouts import play_sync, rollouts_sync

class Thinker:
    async def reply(self, conversation, tools):
        print("thinking", flush=True)
        await asyncio.Event().wait()

with ORS(sys.argv[1]) as client:
    env = client.environment("lab")
    if sys.argv[2] == "play":
        play_sync(env.session(split="train", index=0), Thinker(), reward="sum")
    else:
        for record in rollouts_sync(env, [("train", 0)] * 8, Thinker(), reward="sum"):
            pass
"""


@pytest.mark.parametrize(("what", "episodes"), [("play", 1), ("rollouts", 8)])
def test_ctrl_c_ends_all_sessions(raw: Raw, what: str, episodes: int) -> None:
    command = [sys.executable, "-X", "dev", "-c", SCRIPT, raw.url, what]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(episodes):
        assert process.stdout.readline() == "thinking\n"
    assert open_sessions(raw) == episodes
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert err.rstrip().endswith("KeyboardInterrupt"), err
    assert open_sessions(raw) == 0
