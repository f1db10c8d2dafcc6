"""Forks that are asked for twice, given up, or cut off: never two, and nothing left behind."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, ClassVar

import pytest

from ors import Limits, Server
from ors.errors import BadRequest, Gone, ServerFailed, Unavailable
from ors.server.sessions.admission import ApiKey, Keys
from ors.server.sessions.calls import MOST_KEYS, Fork, Forks
from ors.server.sessions.registry import Sessions
from ors.server.sessions.session import ServerSession
from tests.requirements import proves
from tests.server.sessions.test_session import runtime
from tests.support.board_environment import AsyncForking, Bare, Board, Forking
from tests.support.forks import asking, fork, forked, moved, opened, running, total
from tests.support.live_server import app_of, hosted, serving
from tests.support.raw_http import Raw
from tests.support.waiting import until, wait_until

ALL = (Board, Forking, AsyncForking, Bare)


@pytest.fixture(scope="module")
def raw() -> Iterator[Raw]:
    with serving(Server(ALL, limits=Limits(grace_seconds=0.1))) as url:
        yield Raw(url)


# ── Keys ─────────────────────────────────────────────────────────────────────────────────────────


@proves("fork.once")
def test_a_fork_with_the_same_key_is_the_same_fork(raw: Raw) -> None:
    first, _ = opened(raw)
    other, _ = opened(raw)
    sids = forked(raw, first, 2, key="k")
    assert fork(raw, first, 5, key="k").json() == {"sids": sids}
    assert set(forked(raw, first, 2, key="l")).isdisjoint(sids)
    assert set(forked(raw, other, 2, key="k")).isdisjoint(sids)


@proves("fork.once")
def test_a_fork_with_the_same_key_joins_the_running_one_also_when_the_first_client_leaves() -> None:
    server = Server(ALL)
    with serving(server) as url, ThreadPoolExecutor(1) as pool:
        raw = Raw(url)
        first, id = opened(raw, "forking", gate=True)
        connection = asking(raw, first, 2, key="k")
        assert Board.gates[f"{id}.forking"].wait(20)
        (session,) = app_of(server).sessions
        assert session.forks is not None
        waited_for = session.forks.by_key("k")
        assert waited_for is not None
        joined = pool.submit(forked, raw, first, 2, "k")
        wait_until(lambda: waited_for._wanted == 2)
        connection.close()
        wait_until(lambda: waited_for._wanted == 1)
        Board.gates[f"{id}.fork"].set()
        sids = joined.result(20)
        assert fork(raw, first, 2, key="k").json() == {"sids": sids}
        assert (total(raw), Board.counts[f"{id}.fork"]) == (3, 2)


def test_a_fork_that_failed_may_be_tried_again_with_its_key(raw: Raw) -> None:
    sid, id = opened(raw, "forking", boom=1)
    assert fork(raw, sid, 1, key="k").status == 500
    assert len(forked(raw, sid, 1, key="k")) == 1
    assert Board.counts[f"{id}.fork"] == 2


# ── Interrupted ──────────────────────────────────────────────────────────────────────────────────


@proves("fork.once")
@pytest.mark.parametrize("serve", [serving, hosted])
def test_a_client_that_leaves_in_the_middle_leaves_no_session(serve: Any) -> None:
    with serve(Server(ALL)) as url:
        raw = Raw(url)
        sid, id = opened(raw, "asyncforking", stay=3)
        connection = asking(raw, sid, 5, key="k")
        wait_until(lambda: Board.counts[f"{id}.fork"] == 3)
        connection.close()
        wait_until(lambda: Board.counts[f"{id}.teardown"] == 2)
        wait_until(lambda: running(raw, sid) == 0)
        assert total(raw) == 1
        assert moved(raw, sid, "a", "asyncforking") == "a"
        assert len(forked(raw, sid, 2, key="k")) == 2


def test_a_copy_that_is_made_in_a_thread_when_the_client_leaves_is_torn_down() -> None:
    with serving(Server(ALL, limits=Limits(sessions=3))) as url:
        raw = Raw(url)
        sid, id = opened(raw, "forking", gate=True)
        with closing(asking(raw, sid, 2)):
            assert Board.gates[f"{id}.forking"].wait(20)
            assert raw.post("/create", {"task_spec": {}}, sid="x").status == 429
        wait_until(lambda: "ors_threads_lost 1" in raw.get("/-/metrics").body.decode())
        raw.get("/health")  # a turn of the loop later, the thread has been told to make no second copy
        Board.gates[f"{id}.fork"].set()
        wait_until(lambda: Board.counts[f"{id}.teardown"] == 1)
        wait_until(lambda: running(raw, sid) == 0)
        assert (total(raw), Board.counts[f"{id}.fork"]) == (1, 1)
        assert len(forked(raw, sid, 2)) == 2


def test_a_fork_whose_session_is_deleted_is_gone_and_leaves_nothing(raw: Raw) -> None:
    sid, id = opened(raw, "asyncforking", stay=2)
    before = total(raw)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(fork, raw, sid, 3)
        wait_until(lambda: Board.counts[f"{id}.fork"] == 2)
        assert raw.post("/delete", sid=sid).status == 200
        answer = asked.result(20)
    assert (answer.status, answer.headers["ors-reason"]) == (410, "deleted")
    assert Board.counts[f"{id}.teardown"] == 2  # one copy, and the session itself
    assert total(raw) == before - 1


def test_a_session_ends_after_the_copies_that_a_fork_has_made(raw: Raw) -> None:
    sid, id = opened(raw, "asyncforking", stay=2, teardown_gate=True)
    with closing(asking(raw, sid, 2)), ThreadPoolExecutor(1) as pool:
        wait_until(lambda: Board.counts[f"{id}.fork"] == 2)
        deleting = pool.submit(raw.post, "/delete", sid=sid)
        assert Board.gates[f"{id}.tearing"].wait(20)
        for _ in range(20):
            assert raw.post("/ping", sid=sid).status == 410
        assert Board.counts[f"{id}.teardown"] == 0
        Board.gates[f"{id}.teardown"].set()
        assert deleting.result(20).status == 200
    assert Board.counts[f"{id}.teardown"] == 2


def test_a_session_without_teardown_ends_after_the_thread_that_copies_it(raw: Raw) -> None:
    sid, id = opened(raw, "bare", gate=True)
    with closing(asking(raw, sid, 2)), ThreadPoolExecutor(1) as pool:
        assert Board.gates[f"{id}.forking"].wait(20)
        deleting = pool.submit(raw.post, "/delete", sid=sid)
        wait_until(lambda: raw.post("/ping", sid=sid).status == 410)
        for _ in range(20):
            raw.get("/health")
        assert not deleting.done()
        Board.gates[f"{id}.fork"].set()
        assert deleting.result(20).status == 200
    assert Board.counts[f"{id}.fork"] == 1


def test_a_server_that_drains_refuses_the_forks_that_wait_at_once() -> None:
    server = Server(ALL, limits=Limits(grace_seconds=3))
    with ThreadPoolExecutor(1) as pool, serving(server) as url:
        raw = Raw(url)
        sid, id = opened(raw)
        with raw.opened(
            sid, "hold", env="board"
        ):  # its client leaves, and is waited for while there is grace
            asked = pool.submit(fork, raw, sid, 2)
            wait_until(lambda: running(raw, sid) == 2)
            loop = app_of(server).shared.loop
            assert loop is not None
            draining = asyncio.run_coroutine_threadsafe(app_of(server).drain(), loop)
            answer = asked.result(20)  # while the call still runs
            assert (answer.status, answer.headers["ors-reason"]) == (503, "shutdown")
            assert fork(raw, sid).status == 503
            Board.gates[f"{id}.hold"].set()
        draining.result(20)


def test_a_server_that_ends_tears_down_what_a_fork_has_made() -> None:
    with serving(Server(ALL, limits=Limits(grace_seconds=0.1))) as url:
        raw = Raw(url)
        sid, id = opened(raw, "asyncforking", stay=3)
        connection = asking(raw, sid, 5)
        wait_until(lambda: Board.counts[f"{id}.fork"] == 3)
    assert Board.counts[f"{id}.teardown"] == 3
    connection.close()


# ── In one turn of the loop ──────────────────────────────────────────────────────────────────────


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def two_sids() -> list[str]:
    await asyncio.sleep(0)
    return ["a", "b"]


async def test_new_sessions_that_nobody_waits_for_are_ended() -> None:
    ended: list[str] = []
    forks, fork = Forks(), Fork(0, ended.extend)
    forks.start(fork, two_sids(), "k")
    await turns()
    assert (ended, forks.by_key("k"), len(forks)) == (["a", "b"], None, 0)


async def test_a_client_that_leaves_when_its_answer_is_ready_leaves_no_session() -> None:
    ended: list[str] = []
    forks, fork = Forks(), Fork(0, ended.extend)
    task = forks.start(fork, two_sids(), "k")
    waiting = asyncio.create_task(fork.sids())
    task.add_done_callback(lambda _: waiting.cancel())
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (ended, forks.by_key("k")) == (["a", "b"], None)


async def test_what_one_client_has_got_is_not_taken_away_when_another_leaves() -> None:
    ended: list[str] = []
    forks, fork = Forks(), Fork(0, ended.extend)
    forks.start(fork, two_sids(), "k")
    assert await fork.sids() == ["a", "b"]
    late = asyncio.create_task(fork.sids())
    await asyncio.sleep(0)
    late.cancel()
    await turns()
    assert (ended, forks.by_key("k")) == ([], fork)


async def test_a_fork_that_is_stopped_cleans_up_in_peace() -> None:
    begun, cleaned = asyncio.Event(), asyncio.Event()

    async def work() -> list[str]:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            await turns()
            cleaned.set()
        return []

    forks, fork = Forks(), Fork(0, lambda _: None)
    forks.start(fork, work(), None)
    await begun.wait()
    (task,) = forks.stop()
    await turns(2)
    assert forks.stop() == [task]
    await asyncio.wait({task})
    assert cleaned.is_set()


async def test_new_sessions_are_ended_if_the_first_one_ends_in_the_moment_in_which_they_are_made() -> None:
    ended: list[str] = []
    loop = asyncio.get_running_loop()
    forks, fork, gate = Forks(), Fork(0, ended.extend), loop.create_future()

    async def work() -> list[str]:
        await gate
        return ["a", "b"]

    forks.start(fork, work(), "k")
    waiting = asyncio.create_task(fork.sids())
    await turns()
    gate.set_result(None)
    loop.call_soon(forks.stop)  # after the step that ends the task, before anybody hears of its end
    assert await waiting == ["a", "b"]
    assert (ended, forks.by_key("k")) == (["a", "b"], None)


@pytest.mark.parametrize("error", [ValueError(), asyncio.CancelledError()])
async def test_a_fork_that_fails_when_nobody_waits_for_it_is_over(error: BaseException) -> None:
    async def work() -> list[str]:
        raise error

    broken: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: broken.append(context))
    ended: list[str] = []
    forks, fork = Forks(), Fork(0, ended.extend)
    forks.start(fork, work(), "k")
    await turns()
    assert (ended, broken, fork.void, len(forks)) == ([], [], True, 0)


async def test_a_session_remembers_its_last_keys() -> None:
    forks = Forks()
    for number in range(MOST_KEYS + 1):
        fork = Fork(0, lambda _: None)
        forks.start(fork, two_sids(), str(number))
        await fork.sids()
    assert forks.by_key("0") is None
    assert all(forks.by_key(str(number)) is not None for number in range(1, MOST_KEYS + 1))


async def test_sessions_and_places_of_a_fork_without_a_client_are_given_back() -> None:
    app = app_of(Server([Board], limits=Limits(sessions=3)))
    app.begin()
    sessions = app.sessions
    now = asyncio.get_running_loop().time()
    session = sessions.reserve("s", "board", now, app.limits)
    session.start(app._environments["board"].episode({"id": "s"}, {}))
    await session.ready()
    for cancelled_at_once in (False, True):
        sessions.fork(session, 2)
        assert sessions.admission.saturated
        if cancelled_at_once:
            assert session.forks is not None
            session.forks.stop()
        await until(
            lambda: not sessions.admission.saturated and not session.running, "the forks have given up"
        )
        assert [each.sid for each in sessions] == ["s"]
    await app.stop()
    assert Board.counts["s.teardown"] == 3


class Copying:
    """An episode whose copies are made when the test says so."""

    broken = ""
    needs_teardown = False
    task: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.go.set()

    def set_up_at_once(self) -> bool:
        return True

    async def fork(self, count: int) -> list["Copying"]:
        await self.go.wait()
        return [Copying() for _ in range(count)]


class NotCopied(Copying):
    async def fork(self, count: int) -> list[Copying]:
        raise ServerFailed("it cannot be copied")


def started(sessions: Sessions, episode: Copying, env: str = "env", key: str = "") -> ServerSession:
    session = sessions.reserve(f"{env} {key}", env, 0.0, sessions.shared.limits, key)
    session.start(episode)  # type: ignore[arg-type]
    return session


@pytest.mark.parametrize(("env", "key"), [("small", ""), ("env", "few")])
async def test_a_fork_counts_for_its_environment_and_its_key(env: str, key: str) -> None:
    sessions = Sessions(runtime(), Keys([ApiKey("few", "secret", sessions=3)]))
    sessions.admission.per_environment = {"small": 3}
    session = started(sessions, Copying(), env, key)
    with pytest.raises(BadRequest, match="at most 3 sessions at once"):
        sessions.fork(session, 3)
    assert len(await sessions.fork(session, 2).sids()) == 2
    with pytest.raises(Unavailable):
        sessions.admission.enter(env, key)
    with pytest.raises(Unavailable) as full:
        await sessions.fork(session, 1).sids()
    assert (full.value.status, full.value.reason) == (429, "limit")


async def test_a_fork_that_fails_gives_its_places_back() -> None:
    sessions = Sessions(runtime(sessions_per_environment=3, sessions_per_key=3))
    session = started(sessions, NotCopied())
    with pytest.raises(ServerFailed, match="it cannot be copied"):
        await sessions.fork(session, 2).sids()
    sessions.admission.enter("env", "", 2)
    with pytest.raises(Unavailable):
        sessions.admission.enter("env", "")


async def test_a_session_that_has_failed_is_not_forked_and_says_why_also_without_a_place() -> None:
    sessions = Sessions(runtime(sessions=2))
    session = started(sessions, Copying())
    session.failure = ServerFailed("it hangs")
    sessions.admission.enter("env", "")
    with pytest.raises(ServerFailed, match="it hangs"):
        sessions.fork(session, 1)


async def test_copies_have_the_place_of_their_task() -> None:
    sessions = Sessions(runtime())
    session = started(sessions, Copying())
    session.place = ("train", 2)
    sids = await sessions.fork(session, 2).sids()
    assert [sessions.find(sid, 0).place for sid in sids] == [("train", 2)] * 2


async def test_copies_that_nobody_waits_for_are_deleted_also_if_one_has_ended_before() -> None:
    broken: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: broken.append(context))
    sessions = Sessions(runtime())
    first = started(sessions, Copying())
    sessions.fork(first, 2)
    while len(sessions) == 1:  # turn by turn: they are there for a few turns only
        await asyncio.sleep(0)
    one, other = (session for session in sessions if session is not first)
    sessions.delete(one.sid, now=0)
    await turns()
    assert (list(sessions), broken) == ([first], [])
    with pytest.raises(Gone, match=r"^Session deleted$") as ended:
        other.check()
    assert ended.value.reason == "deleted"
    with pytest.raises(Gone) as ended:
        sessions.find(other.sid, asyncio.get_running_loop().time())
    assert ended.value.reason == "deleted"
