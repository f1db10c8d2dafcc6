"""A server that is about to end: who waits is told at once, who works may go on."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from ors import Limits, Server
from ors.types import JSONObject
from tests.support.environments import Lab
from tests.support.live_server import app_of, serving
from tests.support.mcp_messages import event, path_of, streamed
from tests.support.raw_http import Answer, Raw
from tests.support.waiting import wait_until


class Listing(Lab):
    """Its list of tasks takes until the test says."""

    asked = threading.Event()
    gate = threading.Event()

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        cls.asked.set()
        assert cls.gate.wait(20)
        return [{}]


@contextmanager
def draining(server: Server) -> Iterator[Future[None]]:
    """The server drains; it is through after the block, if not before."""
    loop = app_of(server).shared.loop
    assert loop is not None
    over = asyncio.run_coroutine_threadsafe(app_of(server).drain(), loop)
    yield over
    over.result(20)


def set_up(raw: Raw, task_id: str) -> str:
    """A session that is ready for calls: a server that ends lets go of one whose setup still runs."""
    sid = raw.session(task={"id": task_id})
    assert raw.get("/lab/prompt", sid=sid).status == 200  # waits for the setup
    return sid


def told(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.headers["ors-reason"]


def test_a_finished_result_whose_client_was_cut_off_is_still_there_for_the_grace_period() -> None:
    server = Server([Lab], limits=Limits(grace_seconds=1000))
    with serving(server) as url:
        raw = Raw(url)
        sid = set_up(raw, "cut")
        with raw.opened(sid, "hold") as call:
            task_id = call.task_id
        while app_of(server).timers.pings._due:  # until the cut is known
            assert raw.get("/health").status == 200
        with draining(server) as over:
            Lab.gates["cut.hold"].set()
            wait_until(lambda: raw.metric("ors_calls_running") == 0)
            for _ in range(20):
                assert raw.get("/-/health/ready").status == 503
            assert not over.done()
            assert raw.call(sid, "", task_id=task_id).result()["ok"]


def test_a_finished_result_whose_mcp_client_has_left_is_not_waited_for() -> None:
    server = Server([Lab], limits=Limits(grace_seconds=1000))
    with serving(server) as url:
        raw = Raw(url)
        with streamed(raw, path_of(raw, set_up(raw, "left")), "hold", 1) as response:
            event(response)
        while app_of(server).timers.pings._due:  # until it is known that the client has left
            assert raw.get("/health").status == 200
        with draining(server):
            Lab.gates["left.hold"].set()


def test_whoever_waits_for_a_setup_is_told_while_it_still_hangs() -> None:
    server = Server([Lab], limits=Limits(grace_seconds=1000, teardown_seconds=0.1))
    with serving(server) as url, ThreadPoolExecutor(1) as pool:
        raw = Raw(url)
        sid = raw.session(task={"id": "unready", "setup_gate": True})
        prompt = pool.submit(raw.get, "/lab/prompt", sid=sid)
        with raw.opened(sid, "nothing") as call, draining(server):
            rest = call.rest()
            assert "shutting down" in rest.error()
            assert b"reason: shutdown" in rest.body
            assert told(prompt.result(20)) == (410, "shutdown")
            assert told(raw.post("/ping", sid=sid)) == (410, "shutdown")
        Lab.gates["unready.setup"].set()


def test_a_creation_that_waits_for_the_list_of_tasks_is_refused() -> None:
    server = Server([Listing], limits=Limits(grace_seconds=1000))
    with serving(server) as url, ThreadPoolExecutor(1) as pool:
        raw = Raw(url)
        creation = pool.submit(raw.post, "/create", {"split": "train", "index": 0}, sid="s")
        assert Listing.asked.wait(20)
        with draining(server):
            assert told(creation.result(20)) == (503, "shutdown")
            assert raw.get("/-/sessions").json()["total"] == 0
        Listing.gate.set()


def test_a_session_that_is_deleted_before_its_task_is_known_is_gone_at_once() -> None:
    class Again(Listing):  # what one class has listed is no other's
        asked = threading.Event()
        gate = threading.Event()

    with serving(Server([Again])) as url, ThreadPoolExecutor(1) as pool:
        raw = Raw(url)
        creation = pool.submit(raw.post, "/create", {"split": "train", "index": 0}, sid="s")
        assert Again.asked.wait(20)
        assert raw.post("/delete", sid="s").status == 200
        assert told(creation.result(20)) == (410, "deleted")
        Again.gate.set()
