"""The same from sync code."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from ors import Server
from ors.client import ORS, Task
from ors.rollouts import AgentMessage, Failed, Scored, Unscored, play_sync, rollouts_sync
from ors.rollouts.episodes.episode import GivenTask
from tests.support.environments import Lab
from tests.support.live_server import serving
from tests.support.raw_http import Raw
from tests.support.scripted_agents import WIN, Script, Thinker


@pytest.fixture
def raw() -> Iterator[Raw]:
    """A server for each test: they count its sessions."""
    with serving(Server([Lab])) as url:
        yield Raw(url)


@pytest.fixture
def client(raw: Raw) -> Iterator[ORS]:
    with ORS(raw.url) as made:
        yield made


def open_sessions(raw: Raw) -> int:
    total: int = raw.get("/-/sessions?environment=lab").json()["total"]
    return total


def until(reached: Callable[[], bool]) -> None:
    for _ in range(2000):
        if reached():
            return
        threading.Event().wait(0.01)
    raise AssertionError("not reached")


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


def test_leaving_the_loop_ends_all_sessions_before_it_goes_on(client: ORS, raw: Raw) -> None:
    def endless() -> Iterator[GivenTask]:
        while True:
            yield "train", 0

    thinker = Thinker(20)
    for number, _ in enumerate(
        rollouts_sync(client.environment("lab"), endless(), thinker, concurrency=50, reward="sum")
    ):
        if number == 19:
            until(lambda: open_sessions(raw) == 50)
            break
    assert open_sessions(raw) == 0


def test_closing_the_client_in_the_middle_ends_all_sessions(raw: Raw) -> None:
    client = ORS(raw.url)
    thinker = Thinker(1)
    records = rollouts_sync(client.environment("lab"), [("train", 0)] * 5, thinker, reward="sum")
    next(records)
    until(lambda: open_sessions(raw) == 4)
    client.close()
    del records
    until(lambda: open_sessions(raw) == 0)


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
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.2)
            print("ended", flush=True)

with ORS(sys.argv[1]) as client:
    env = client.environment("lab")
    try:
        if sys.argv[2] == "play":
            play_sync(env.session(split="train", index=0), Thinker(), reward="sum")
        for record in rollouts_sync(env, [("train", 0)] * 8, Thinker(), reward="sum"):
            pass
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.mark.parametrize(("what", "episodes"), [("play", 1), ("rollouts", 8)])
def test_ctrl_c_ends_all_sessions_before_the_program_goes_on(raw: Raw, what: str, episodes: int) -> None:
    command = [sys.executable, "-X", "dev", "-c", SCRIPT, raw.url, what]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(episodes):
            assert process.stdout.readline() == "thinking\n"
        sessions = open_sessions(raw)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert sessions == episodes
    assert out.split() == ["ended"] * episodes + ["interrupted"], err
    assert open_sessions(raw) == 0
