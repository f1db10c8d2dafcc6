"""What a server remembers of the sessions and calls that are over: by whose key, how long, at what price."""

import asyncio
import re
import threading
import tracemalloc
from pathlib import Path
from typing import Any, ClassVar

import pytest

import ors
from ors._protocol import error_event, new_session_id
from ors.client import ORS, Options
from ors.errors import Gone, NotFound, SessionLost, Unavailable
from ors.limits import Limits
from ors.server import app
from ors.server.episodes.result import Result
from ors.server.http.requests import Request
from ors.server.sessions import registry
from ors.server.sessions.calls import SPENT_KEYS
from ors.types import Blocks, JSONObject
from tests.requirements import proves
from tests.server.sessions.test_session import calls_of, reserve, runtime, settle, store
from tests.support.live_server import serving
from tests.support.raw_http import Raw


@proves("gone.tombstones", "session.key")
async def test_a_tombstone_is_of_its_key() -> None:
    sessions = store()
    sessions.reserve("a", "env", 0.0, sessions.shared.limits, "one")
    for look in (sessions.find, sessions.peek, sessions.delete):
        with pytest.raises(NotFound, match=r"^Session not found$"):
            look("a", 1, "two")
    sessions.delete("a", now=1, key="one")
    for look in (sessions.find, sessions.peek):
        with pytest.raises(Gone, match=r"^Session deleted$"):
            look("a", 2, "one")
        with pytest.raises(NotFound):
            look("a", 2, "two")
    with pytest.raises(NotFound):
        sessions.delete("a", now=2, key="two")
    sessions.delete("a", now=2, key="one")
    assert sessions.reserve("a", "env", 3.0, sessions.shared.limits, "two").key == "two"
    with pytest.raises(NotFound):
        sessions.find("a", 4, "one")


@proves("gone.tombstones")
async def test_a_tombstone_lasts_to_its_last_moment_whether_old_ones_were_removed_or_not() -> None:
    sessions = store()
    reserve(sessions, "a")
    assert ("a" in sessions, sessions.presence("a", now=0)) == (True, 2)
    assert sessions.peek("a", now=0) is sessions.find("a", now=0)
    sessions.delete("a", now=100)
    assert ("a" in sessions, sessions.presence("a", now=999)) == (False, 1)
    with pytest.raises(Gone):
        sessions.find("a", now=999)
    for removed in (False, True):
        if removed:
            sessions.reap(now=1000)
            assert not sessions._ended
        assert (sessions.presence("a", now=1000), sessions.presence("unknown", now=0)) == (0, 0)
        with pytest.raises(NotFound):
            sessions.find("a", now=1000)


@proves("expiry.gone")
async def test_an_idle_session_is_told_to_have_expired() -> None:
    sessions = store(idle_seconds=10)
    session = reserve(sessions, "a")
    sessions.touch("a", 8, "another key")  # does not count
    sessions.reap(now=11)
    for ask in (lambda: sessions.find("a", now=11), session.check):
        with pytest.raises(Gone, match=r"^Session expired$") as ended:
            ask()
        assert ended.value.reason == "expired"


async def test_a_session_of_an_earlier_start_of_this_server_is_lost() -> None:
    sessions = store()
    sid = new_session_id(0, sessions.identity.incarnation ^ 1)
    with pytest.raises(Gone, match=r"^Session lost: its server was restarted$") as lost:
        sessions.find(sid, now=0)
    assert lost.value.reason == "worker_lost"


async def test_a_session_that_has_ended_gives_its_places_back() -> None:
    sessions = store(sessions_per_environment=1, sessions_per_key=1)
    for end in (lambda session: sessions.delete("a", 0, "key"), sessions.release):
        end(sessions.reserve("a", "env", 0.0, sessions.shared.limits, "key"))
    sessions.admission.enter("env", "key")


async def test_a_creation_that_fails_late_takes_nothing_from_the_session_that_has_its_id_now() -> None:
    sessions = store(sessions=1)
    first = reserve(sessions, "a")
    sessions.delete("a", now=0)
    second = reserve(sessions, "a")
    sessions.release(first)
    assert sessions.find("a", now=0) is second
    with pytest.raises(Unavailable):
        sessions.admission.enter("env", "")


class Lasting:
    """An episode that is set up at once, and whose teardown ends when the test says so."""

    broken = ""
    needs_teardown = True
    task: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        self.go = asyncio.Event()

    def set_up_at_once(self) -> bool:
        return True

    async def teardown(self) -> None:
        await self.go.wait()


async def test_of_two_sessions_that_had_one_id_each_teardown_is_waited_for() -> None:
    sessions, episodes = store(), [Lasting(), Lasting()]
    teardowns = []
    for episode in episodes:
        reserve(sessions, "a").start(episode)  # type: ignore[arg-type]
        teardowns.append(sessions.delete("a", now=0))
    first, second = teardowns
    assert first is not None
    assert second is not None
    episodes[0].go.set()
    await first
    await settle()
    assert sessions.delete("a", now=0) is second
    episodes[1].go.set()
    await second
    await settle()
    assert sessions.delete("a", now=0) is None


async def test_a_server_that_closes_ends_every_session() -> None:
    sessions = store(sessions=3)
    creating, ready, calling = (reserve(sessions, sid) for sid in ("creating", "ready", "calling"))
    episode = Lasting()
    ready.start(episode)  # type: ignore[arg-type]

    async def work(name: str, given: dict[str, Any]) -> Result:
        return await asyncio.Future()

    call = calling.calls.start(work, "x", {}, "t")
    closing = asyncio.create_task(sessions.close(0, "no more"))
    await settle()
    assert not closing.done()
    episode.go.set()
    async with asyncio.timeout(20):
        await closing
    assert call.ending == error_event("no more", "shutdown")
    for session in (creating, ready, calling):
        with pytest.raises(Gone, match=r"^no more$") as ended:
            session.check()
        assert ended.value.reason == "shutdown"
        with pytest.raises(Gone, match=r"^Session ended: the server is shutting down$") as ended:
            sessions.find(session.sid, now=1)
        assert ended.value.reason == "shutdown"


async def test_a_server_that_drains_ends_sessions_that_are_not_set_up_and_keeps_the_others() -> None:
    sessions = store(sessions=2)
    creating, ready = (reserve(sessions, sid) for sid in ("creating", "ready"))
    ready.start(Lasting())  # type: ignore[arg-type]
    await settle()
    sessions.refuse_new(0, "no more")
    with pytest.raises(Gone, match=r"^no more$") as ended:
        creating.check()
    assert ended.value.reason == "shutdown"
    assert list(sessions) == [ready]


async def test_all_calls_can_be_stopped_and_their_sessions_stay() -> None:
    sessions = store()

    async def work(name: str, given: dict[str, Any]) -> Result:
        raise AssertionError("it must not begin")

    calls = [reserve(sessions, sid).calls.start(work, "x", {}, sid) for sid in ("a", "b")]
    sessions.stop_calls("no time left", "shutdown")
    assert [call.ending for call in calls] == [error_event("no time left", "shutdown")] * 2
    assert len(sessions) == 2


@proves("expiry.lifetime")
async def test_a_session_lives_as_long_as_it_may_from_its_creation_however_much_it_is_used() -> None:
    sessions = store(life_seconds=100, idle_seconds=900)
    sessions.reserve("a", "env", 50.0, sessions.shared.limits)
    sessions.reap(now=150)
    assert sessions.find("a", now=150).sid == "a"
    sessions.reap(now=150.1)
    with pytest.raises(Gone, match=r"^Session expired$") as ended:
        sessions.find("a", now=150.1)
    assert ended.value.reason == "life"


async def test_a_drain_goes_on_as_soon_as_the_last_call_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "COMING_BACK_SECONDS", 1000)
    sessions, gate = store(), asyncio.Event()

    async def work(name: str, given: dict[str, Any]) -> Result:
        await gate.wait()
        return Result(b"")

    for sid in ("a", "b"):
        call = reserve(sessions, sid).calls.start(work, "x", {}, sid)
        call.listen(call.taken)
    reserve(sessions, "without any call")
    draining = asyncio.create_task(sessions.drain())
    await settle()
    assert not draining.done()
    gate.set()
    async with asyncio.timeout(20):
        await draining


async def test_a_drain_waits_for_a_client_that_has_to_come_back_for_its_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "COMING_BACK_SECONDS", 0)
    sessions = store()

    async def work(name: str, given: dict[str, Any]) -> Result:
        return Result(b"")

    call = reserve(sessions, "a").calls.start(work, "x", {}, "t")
    await settle()
    assert call.ending == b""
    draining = asyncio.create_task(sessions.drain())
    await settle()
    assert not draining.done()
    call.taken()
    async with asyncio.timeout(20):
        await draining


@pytest.mark.untraced
async def test_a_reap_does_not_touch_the_tombstones_that_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ors.server.sessions.registry.TOMBSTONES", 20_000)
    sessions = store()
    for n in range(25_000):
        reserve(sessions, str(n))
        sessions.delete(str(n), now=n / 100)
    assert len(sessions._ended) == 20_000
    tracemalloc.start()
    try:
        sessions.reap(now=900)
        assert tracemalloc.get_traced_memory()[1] < 20_000
    finally:
        tracemalloc.stop()
    sessions.reap(now=900 + 200)
    assert len(sessions._ended) == 4_999


def test_nothing_is_taken_from_the_front_of_a_plain_dict() -> None:
    # That takes ever longer, the more were taken before: 70 µs with 100,000 in it, against 0.7.
    source = Path(ors.__file__).parent
    found = [path for path in source.rglob("*.py") if re.search(r"del .*\[next\(iter\(", path.read_text())]
    assert found == []


@proves("call.spent-key")
async def test_a_spent_key_is_remembered_for_as_many_further_ones_as_is_promised() -> None:
    calls = calls_of(runtime())
    for n in range(3 * SPENT_KEYS):
        calls.spend(f"k{n}")
        if n % 8192 == 0:
            assert calls.spent(f"k{max(0, n - SPENT_KEYS)}")
    assert all(calls.spent(f"k{n}") for n in range(2 * SPENT_KEYS, 3 * SPENT_KEYS))


async def test_spent_keys_are_bounded_in_number() -> None:
    calls = calls_of(runtime())
    for n in range(2 * SPENT_KEYS + 1):
        calls.spend(f"k{n}")
    assert not calls.spent("k0")
    assert not calls.spent(f"k{SPENT_KEYS - 1}")
    assert calls.spent(f"k{SPENT_KEYS}")


class Watched(ors.Environment):
    """Says when a session has ended."""

    ended: ClassVar[threading.Event] = threading.Event()

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{}]

    def get_prompt(self) -> Blocks:
        return []

    @ors.tool
    def wait(self) -> ors.ToolOutput:
        """Is never called."""
        return ors.ToolOutput(blocks=[])

    def teardown(self) -> None:
        self.ended.set()


@proves("expiry.asked")
def test_a_client_may_ask_for_a_session_that_expires_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "REAP_SECONDS", 0.05)
    Watched.ended.clear()
    soon = Options(idle_seconds=1, ping_seconds=600)
    with serving(ors.Server([Watched])) as url, ORS(url) as patient, ORS(url, options=soon) as hasty:
        kept = patient.environment("watched").session(split="train", index=0).start()
        session = hasty.environment("watched").session(split="train", index=0).start()
        session.get_prompt()
        assert Watched.ended.wait(30)
        with pytest.raises(SessionLost, match="Session expired"):
            session.get_prompt()
        assert kept.get_prompt() == []
        kept.close()


@proves("expiry.asked")
def test_a_time_that_is_no_number_of_seconds_is_refused(raw: Raw) -> None:
    for wrong in ("0", "-1", "1.5", "soon", "", "9" * 20):
        sid = raw.post("/create_session", {}).json()["sid"]
        body = {"env_name": "lab", "task_spec": {}}
        answer = raw.post("/create", body, sid=sid, headers={"ORS-Idle-Seconds": wrong})
        assert (answer.status, "ORS-Idle-Seconds" in answer.detail) == (400, True), wrong


@proves("expiry.asked")
def test_a_client_cannot_ask_for_more_than_the_server_allows() -> None:
    limits = Limits(idle_seconds=30)
    request = Request("POST", "/create", b"", {b"ors-idle-seconds": b"60"}, b"")
    assert request.limits(limits) == limits
