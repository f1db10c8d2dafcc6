"""Forks on several servers: they live where the first session lives, and are found from everywhere."""

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ors import Limits
from tests.requirements import proves
from tests.support.board_environment import AsyncForking, Board, Forking
from tests.support.forks import asking, fork, forked, moved
from tests.support.in_process_cluster import ServerThread, linked_servers, minted, routing
from tests.support.raw_http import Raw
from tests.support.waiting import wait_until


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[list[ServerThread]]:
    envs = [Board, Forking, AsyncForking]
    with linked_servers(2, tmp_path, envs, limits=Limits(grace_seconds=0.1)) as made:
        yield made


def slots(sids: list[str]) -> set[int]:
    return {int(sid[:4], 16) for sid in sids}


@proves("fork.copies")
@pytest.mark.parametrize("slot", [0, 1])
def test_forks_live_where_the_first_one_lives_whoever_is_asked(pair: list[ServerThread], slot: int) -> None:
    sid = minted(pair, slot, "board")
    for one in pair:
        sids = forked(one.raw, sid, 3)
        assert slots(sids) == {slot}
        for each in sids:
            assert [moved(other.raw, each, "a") for other in pair] == ["a", "a,a"]
    assert [one.sessions for one in pair] == ([7, 0] if slot == 0 else [0, 7])


def test_forks_of_a_session_whose_id_the_client_made_are_found_too(pair: list[ServerThread]) -> None:
    for _ in range(4):
        sid = pair[0].raw.session("board")
        (home,) = (slot for slot, one in enumerate(pair) if sid in one.server.app.sessions)
        sids = forked(pair[1 - home].raw, sid, 2)
        assert slots(sids) == {home}
        for one in pair:
            assert one.raw.post("/ping", sid=sids[0]).status == 200


def test_a_router_passes_forks_on_and_their_keys(pair: list[ServerThread]) -> None:
    with routing([one.raw.url for one in pair]) as router:
        sid = minted(pair, 1, "board")
        sids = forked(router, sid, 2, key="k")
        assert fork(router, sid, 2, key="k").json() == {"sids": sids}
        assert fork(pair[0].raw, sid, 2, key="k").json() == {"sids": sids}
        assert [moved(router, each, "a") for each in sids] == ["a", "a"]
        assert router.post("/-/fork", {"n": 1}).status == 400
        assert router.post("/-/fork", {"n": 1}, sid=str(uuid.uuid4())).status == 404


def test_a_client_that_leaves_the_router_leaves_no_session_behind_it(pair: list[ServerThread]) -> None:
    with routing([one.raw.url for one in pair]) as router:
        id = uuid.uuid4().hex
        sid = minted(pair, 1, "asyncforking", {"id": id, "stay": 3})
        connection = asking(router, sid, 5)
        wait_until(lambda: Board.counts[f"{id}.fork"] == 3)
        connection.close()
        wait_until(lambda: Board.counts[f"{id}.teardown"] == 2)
        assert pair[1].sessions == 1


def test_a_server_that_dies_during_a_fork_is_told_as_a_lost_session(pair: list[ServerThread]) -> None:
    id = uuid.uuid4().hex
    sid = minted(pair, 1, "asyncforking", {"id": id, "stay": 1})
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(fork, pair[0].raw, sid, 2)
        wait_until(lambda: Board.counts[f"{id}.fork"] == 1)
        pair[1].cut()
        answer = asked.result(30)
    assert (answer.status, answer.headers["ors-reason"]) == (410, "worker_lost"), answer


def test_limits_are_those_of_the_server_that_has_the_session(tmp_path: Path) -> None:
    with linked_servers(2, tmp_path, [Board], limits=Limits(sessions=3)) as made:
        sid = minted(made, 1, "board")
        assert fork(made[0].raw, sid, 3).status == 400
        forked(made[0].raw, sid, 2)
        assert fork(made[0].raw, sid, 1).status == 429
        assert json.loads(Raw(made[0].raw.url).get("/-/sessions").body)["total"] == 3
