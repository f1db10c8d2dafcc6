"""Prompts: asked for once in a session, and kept within a budget."""

import asyncio
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pytest

from ors import Server, TextBlock
from ors.server.sessions.shared import ENTRY_BYTES, Prompts
from ors.types import Blocks
from tests.requirements import proves
from tests.support.environments import Lab
from tests.support.live_server import hosted, serving
from tests.support.raw_http import Raw

FULL = 8
"""This many different prompts of `PROMPT_BYTES` fill the budget to the last byte."""
PROMPT_BYTES = 1000
BUDGET = FULL * (PROMPT_BYTES + ENTRY_BYTES)


def prompt(number: int, size: int = PROMPT_BYTES) -> bytes:
    return bytes([number]) * size


def filled() -> Prompts:
    prompts = Prompts(BUDGET)
    for number in range(FULL):
        prompts.keep(str(number), prompt(number))
    return prompts


def kept(prompts: Prompts, count: int) -> list[int]:
    return [number for number in range(count) if prompts.get(str(number)) is not None]


def test_the_last_prompt_of_a_session_is_kept_until_it_ends() -> None:
    prompts = Prompts()
    prompts.keep("a", b"one")
    prompts.keep("b", b"other")
    prompts.keep("a", b"two")
    assert (prompts.get("a"), prompts.get("b"), prompts.get("c")) == (b"two", b"other", None)
    assert prompts.end("a") == prompts.end("a") == []
    assert (prompts.get("a"), prompts.get("b")) == (None, b"other")


def test_over_the_budget_the_oldest_prompt_is_dropped() -> None:
    prompts = filled()
    assert kept(prompts, FULL) == list(range(FULL))
    prompts.keep("0", prompt(0))  # now the newest
    prompts.keep(str(FULL), prompt(FULL))
    assert kept(prompts, FULL + 1) == [0, *range(2, FULL + 1)]


def test_one_byte_more_than_the_budget_is_too_much() -> None:
    prompts = filled()
    prompts.keep(str(FULL - 1), prompt(FULL, PROMPT_BYTES + 1))
    assert kept(prompts, FULL) == list(range(1, FULL))


def test_what_is_dropped_makes_room_for_as_much() -> None:
    prompts = filled()
    for number in range(FULL):
        prompts.end(str(number))
    for number in range(FULL):
        prompts.keep(str(number), prompt(number))
    assert kept(prompts, FULL) == list(range(FULL))


def test_equal_prompts_take_the_memory_of_one() -> None:
    prompts, many = Prompts(BUDGET), (BUDGET - PROMPT_BYTES) // ENTRY_BYTES
    for number in range(many):
        prompts.keep(str(number), prompt(7))
    assert kept(prompts, many) == list(range(many))
    assert len({id(prompts.get(str(number))) for number in range(many)}) == 1
    for number in range(many):
        prompts.end(str(number))
    prompts.keep("all", prompt(8, BUDGET - ENTRY_BYTES))
    assert prompts.get("all") is not None


class Counting(Lab):
    """Counts its prompts by the task's id. The first ones fail, if the task says so."""

    asked: ClassVar[dict[str, int]] = {}
    begun: ClassVar[threading.Semaphore] = threading.Semaphore(0)
    going: ClassVar[threading.Event] = threading.Event()

    def get_prompt(self) -> Blocks:
        count = self.asked[self.id] = self.asked.get(self.id, 0) + 1
        if self.task_spec.get("held"):
            self.begun.release()
            assert self.going.wait(20)
        if count <= int(str(self.task_spec.get("fails", 0))):
            raise ValueError("not yet")
        return [TextBlock(text=f"asked {count} times" + "x" * int(str(self.task_spec.get("size", 0))))]


@pytest.fixture(scope="module", params=["server", "asgi"])
def raw(request: pytest.FixtureRequest) -> Iterator[Raw]:
    with (serving if request.param == "server" else hosted)(Server([Counting])) as url:
        yield Raw(url)


def opened(raw: Raw, **task: object) -> tuple[str, str]:
    """A new session, and the id under which its prompts are counted."""
    sid = raw.post("/create_session").json()["sid"]
    assert (
        raw.post("/create", {"env_name": "counting", "task_spec": {"id": sid, **task}}, sid=sid).status == 200
    )
    return sid, sid


@proves("prompt.once")
@pytest.mark.parametrize("size", [0, 5 * 2**20])
def test_an_environment_is_asked_for_its_prompt_once(raw: Raw, size: int) -> None:
    sid, id = opened(raw, size=size)
    first, second = (raw.get("/counting/prompt", sid=sid) for _ in range(2))
    raw.call(sid, "echo", {"text": "x"}, env="counting")
    third = raw.get("/counting/prompt", sid=sid)
    assert first.json()[0]["text"] == "asked 1 times" + "x" * size
    assert first.body == second.body == third.body
    assert Counting.asked[id] == 1


@proves("prompt.once")
def test_requests_for_a_prompt_at_the_same_time_share_one_run(raw: Raw) -> None:
    Counting.going.clear()
    sid, id = opened(raw, held=True)
    with ThreadPoolExecutor(5) as pool:
        answers = [pool.submit(raw.get, "/counting/prompt", sid=sid) for _ in range(5)]
        assert Counting.begun.acquire(timeout=20)
        assert raw.post("/ping", sid=sid).status == 200
        Counting.going.set()
        bodies = {(each.result().status, each.result().body) for each in answers}
    assert len(bodies) == 1
    assert Counting.asked[id] == 1


@proves("prompt.once")
def test_a_failed_prompt_is_not_kept(raw: Raw) -> None:
    sid, id = opened(raw, fails=2)
    statuses = [raw.get("/counting/prompt", sid=sid).status for _ in range(4)]
    assert statuses == [500, 500, 200, 200]
    assert Counting.asked[id] == 3


@proves("prompt.once")
def test_a_fork_has_the_prompt_of_the_first_session(raw: Raw) -> None:
    sid, id = opened(raw)
    (early,) = raw.post("/-/fork", {"n": 1}, sid=sid).json()["sids"]
    first = raw.get("/counting/prompt", sid=sid).body
    (late,) = raw.post("/-/fork", {"n": 1}, sid=sid).json()["sids"]
    assert raw.get("/counting/prompt", sid=late).body == first
    raw.post("/delete", sid=sid)
    assert raw.get("/counting/prompt", sid=late).body == first
    assert Counting.asked[id] == 1
    assert (
        raw.get("/counting/prompt", sid=early).json()[0]["text"] == "asked 2 times"
    )  # had none to go on from


@proves("prompt.once")
def test_a_new_session_under_the_same_id_is_asked_for_its_own_prompt(raw: Raw) -> None:
    id = sid = uuid.uuid4().hex
    for number in (1, 2):
        assert raw.post("/create", {"env_name": "counting", "task_spec": {"id": id}}, sid=sid).status == 200
        assert raw.get("/counting/prompt", sid=sid).json()[0]["text"] == f"asked {number} times"
        assert raw.post("/delete", sid=sid).status == 200


class Slow(Lab):
    """Waits for ever in its prompt, and tells when it is cancelled."""

    begun: ClassVar[threading.Event] = threading.Event()
    cancelled: ClassVar[threading.Event] = threading.Event()

    async def get_prompt(self) -> Blocks:  # type: ignore[override]
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()
        return []


def test_a_session_that_is_deleted_ends_its_prompt_and_says_so() -> None:
    with serving(Server([Slow])) as url, ThreadPoolExecutor(1) as pool:
        raw = Raw(url)
        sid = raw.session("slow")
        asked = pool.submit(raw.get, "/slow/prompt", sid=sid)
        assert Slow.begun.wait(20)
        assert raw.post("/delete", sid=sid).status == 200
        assert asked.result().status == 410
        assert Slow.cancelled.is_set()
