"""What the live feed and the metrics tell about episodes that have ended."""

import asyncio
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from ors import Server
from ors.server.admin.live_sessions import KEPT, SHOWN
from ors.server.observe.events import EpisodeEnded
from ors.types import Blocks
from tests.server.observe.test_metrics_and_log import samples
from tests.support.environments import Lab, Other
from tests.support.feeds import following
from tests.support.in_process_cluster import linked_servers, minted, routing
from tests.support.live_server import app_of, serving
from tests.support.raw_http import Raw


@pytest.fixture
def lab() -> Iterator[Raw]:
    with serving(Server([Lab, Other])) as url:
        yield Raw(url)


def episode(raw: Raw, *rewards: float, finished: bool = False, end: bool = True) -> str:
    """Plays an episode that gets these rewards."""
    sid = raw.session(task={"n": len(rewards)})
    raw.get("/lab/prompt", sid=sid)  # waits for the setup
    for number, value in enumerate(rewards, 1):
        raw.call(sid, "reward", {"value": value, "finished": finished and number == len(rewards)})
    if end:
        raw.post("/delete", sid=sid)
    return sid


def told(raw: Raw, path: str = "/-/api/live") -> Any:
    with following(raw, path) as feed:
        return feed.next("episodes")


def test_episodes_are_counted_by_their_outcomes(lab: Raw) -> None:
    episode(lab, 0.5, 0.5, finished=True)
    episode(lab, *[0.1] * 10)  # whose sum is a little less than 1
    episode(lab, -2.0)
    episode(lab)
    failed = lab.session()
    lab.call(failed, "boom", {"text": "x"})
    lab.post("/delete", sid=failed)
    broken = lab.session(task={"fail": "setup"})
    lab.get("/lab/prompt", sid=broken)
    lab.post("/delete", sid=broken)
    found = samples(lab)
    assert found["ors_episodes_total", "lab", "scored"] == 3
    assert found["ors_episodes_total", "lab", "unscored"] == 1
    assert found["ors_episodes_total", "lab", "failed"] == 2
    assert found["ors_episodes_solved_total", "lab"] == 2
    assert found["ors_episode_reward_total", "lab", "plus"] == pytest.approx(2)
    assert found["ors_episode_reward_total", "lab", "minus"] == 2
    totals = told(lab)["totals"]["lab"]
    assert {**totals, "reward": round(totals["reward"], 6)} == {
        "ended": 6, "scored": 3, "solved": 2, "reward": 0,
    }  # fmt: skip


def test_an_episode_without_a_prompt_has_failed() -> None:
    class Mute(Lab):
        def get_prompt(self) -> Blocks:
            raise RuntimeError("no words")

    with serving(Server([Mute])) as url:
        raw = Raw(url)
        sid = raw.session("mute")
        assert raw.get("/mute/prompt", sid=sid).status == 500
        raw.post("/delete", sid=sid)
        assert told(raw)["ended"][0]["outcome"] == "failed"


def test_an_episode_is_counted_once_when_its_tool_finishes_it(lab: Raw) -> None:
    sid = episode(lab, 1.0, finished=True, end=False)
    assert told(lab)["totals"]["lab"]["ended"] == 1
    lab.post("/delete", sid=sid)
    assert told(lab)["totals"]["lab"]["ended"] == 1


def test_ended_episodes_stay_with_their_rewards_the_newest_first(lab: Raw) -> None:
    first = episode(lab, 0.25)
    second = episode(lab, 0.5, 0.5, finished=True)
    other = lab.session("other")
    lab.get("/other/prompt", sid=other)
    lab.post("/delete", sid=other)
    newest, middle, oldest = told(lab)["ended"]
    assert (newest["sid"], newest["outcome"], newest["reward"]) == (other, "unscored", None)
    assert (middle["sid"], middle["reward"], middle["calls"], middle["task"]) == (second, 1.0, 2, {"n": 2})
    assert (oldest["sid"], oldest["reward"]) == (first, 0.25)
    assert [row["sid"] for row in told(lab, "/-/api/live?environment=other")["ended"]] == [other]


def test_ended_episodes_are_few_however_many_there_were() -> None:
    server = Server([Lab])
    with serving(server) as url:
        raw = Raw(url)
        for _ in range(KEPT + 20):
            raw.post("/delete", sid=raw.session(task={"text": "x" * 1000, "y" * 1000: [1]}))
        ended = told(raw)["ended"]
        assert len(ended) == SHOWN
        assert ended[0]["task"] == {"text": "x" * 59 + "…", "y" * 59 + "…": "[…]"}
        [kept] = app_of(server).inspector._live.ended._kept.values()
        assert len(kept) == KEPT


async def test_tasks_of_ended_episodes_are_let_go_when_sessions_are_reaped() -> None:
    class Task(dict[str, Any]):
        """A task that can be referred to weakly."""

    app, task = app_of(Server([Lab])), Task(n=1)
    app.begin()
    app.shared.observers.tell(EpisodeEnded("sid", "lab", "", "scored", 1.0, 1, 0.0, task))
    left = weakref.ref(task)
    del task
    assert left() is not None  # its row is made later
    app._reap(asyncio.get_running_loop())
    assert left() is None
    [row] = app.inspector._live.ended.shown("", "lab")
    assert row["task"] == {"n": 1}
    await app.stop()


def test_ended_episodes_are_those_of_the_own_key_without_private_fields() -> None:
    class Guarded(Lab):
        private_fields = ["answer"]

    with serving(Server([Guarded], api_keys=["one=secret-1", "two=secret-2"])) as url:
        raw = Raw(url)
        mine = {"X-API-Key": "secret-1"}
        sid = raw.session("guarded", task={"n": 1, "answer": 42}, headers=mine)
        raw.post("/delete", sid=sid, headers=mine)
        with following(raw, "/-/api/live", **mine) as feed:
            [row] = feed.next("episodes")["ended"]
            assert row["task"] == {"n": 1}
        with following(raw, "/-/api/live", **{"X-API-Key": "secret-2"}) as feed:
            assert feed.next("episodes")["ended"] == []


def test_points_tell_the_episodes_of_a_second_by_environment(lab: Raw) -> None:
    with following(lab, "/-/api/live") as feed:
        feed.next("sessions")
        episode(lab, 1.0)
        episode(lab, -0.5)
        seen: dict[str, float] = {}
        while seen.get("ended", 0) < 2:
            point = feed.next("point")["episodes"].get("lab", {})
            seen = {name: seen.get(name, 0) + value for name, value in point.items()} or seen
    assert seen == {"ended": 2, "scored": 2, "solved": 1, "reward": 0.5}


def test_the_episodes_of_all_servers_are_added_up(tmp_path_factory: pytest.TempPathFactory) -> None:
    with (
        linked_servers(2, tmp_path_factory.mktemp("links"), [Lab]) as pair,
        routing([one.raw.url for one in pair]) as router,
    ):
        sids = [minted(pair, slot) for slot in (0, 1, 0)]
        for sid in sids:
            router.call(sid, "reward", {"value": 1, "finished": True})
        for raw in (pair[0].raw, router):
            with following(raw, "/-/api/live") as feed:
                found = feed.next("episodes")
                while found["totals"].get("lab", {}).get("ended") != 3:
                    found = feed.next("episodes")
            assert found["totals"]["lab"] == {"ended": 3, "scored": 3, "solved": 3, "reward": 3}
            assert {row["sid"] for row in found["ended"]} == set(sids)
            scraped = samples(raw)
            assert [scraped["ors_episodes_solved_total", "lab", slot] for slot in "01"] == [2, 1]


def test_a_watcher_sees_the_prompt_that_the_client_was_given(lab: Raw) -> None:
    sid = lab.session(task={"n": 7})
    with following(lab, f"/-/api/calls/{sid}") as early:
        assert early.next("prompt") is None
        given = lab.get("/lab/prompt", sid=sid).json()
        assert early.next("prompt") == given
    with following(lab, f"/-/api/calls/{sid}") as late:
        assert late.next("prompt") == given
