"""The calls that ended last, without a server."""

import asyncio

from ors.limits import Limits
from ors.server.admin.live_sessions import Traffic
from ors.server.episodes.result import Result
from ors.server.observe.events import Observers
from ors.server.sessions.calls import Call, Calls
from ors.server.sessions.kept_results import BUDGET_BYTES, CALL_BYTES, MOST_ENDING_BYTES, RecentCalls
from ors.server.sessions.session import ServerSession
from ors.server.sessions.shared import Shared


def add(recent: RecentCalls, number: int, sid: str = "a", key: str = "", size: int = 10) -> None:
    recent.add(sid, key, f"call-{number}", "look", 0.5, float(number), b"{}", b"x" * size)


def test_calls_are_told_apart_by_session_and_key() -> None:
    recent = RecentCalls()
    add(recent, 1)
    add(recent, 2, sid="b")
    add(recent, 3, key="other")
    add(recent, 4)
    assert [call.id for call in recent.of("a", "")] == ["call-1", "call-4"]
    assert [call.id for call in recent.of("a", "other")] == ["call-3"]


def test_the_newest_calls_stay_within_the_budget() -> None:
    recent = RecentCalls()
    size = 10_000
    many = 2 * BUDGET_BYTES // size
    for number in range(many):
        add(recent, number, size=size)
    kept = recent.of("a", "")
    taken = len(kept) * (size + CALL_BYTES)
    assert BUDGET_BYTES // 2 <= taken <= BUDGET_BYTES + size + CALL_BYTES
    assert [call.id for call in kept] == [f"call-{number}" for number in range(many - len(kept), many)]


def test_a_large_result_is_not_kept_but_its_call_is() -> None:
    recent = RecentCalls()
    add(recent, 1, size=MOST_ENDING_BYTES)
    add(recent, 2, size=MOST_ENDING_BYTES + 1)
    whole, large = recent.of("a", "")
    assert (len(whole.ending or b""), large.ending, large.size) == (
        MOST_ENDING_BYTES,
        None,
        MOST_ENDING_BYTES + 1,
    )


def test_prompts_are_kept_beside_the_calls() -> None:
    recent = RecentCalls()
    recent.add_prompt("a", "", b"[]")
    add(recent, 1)
    assert (recent.prompt("a", ""), recent.prompt("a", "other")) == (b"[]", None)
    assert [call.id for call in recent.of("a", "")] == ["call-1"]


def test_calls_since_a_moment_come_newest_first() -> None:
    recent = RecentCalls()
    for number in range(5):
        add(recent, number)
        recent.add_prompt("b", "", b"[]")
    assert [call.id for call in recent.since(2.0)] == ["call-4", "call-3"]


async def test_over_so_many_calls_a_second_the_rest_of_the_second_is_not_kept() -> None:
    shared = Shared(Limits(), Observers())
    shared.loop = asyncio.get_running_loop()
    shared.recent = recent = RecentCalls()
    session, owner = (
        ServerSession(shared, Limits(), "a", "env", "", 0.0),
        Calls(shared, lambda call, result: None),
    )
    recent.left = 2
    for number in range(3):
        session._call_finished(Call(owner, "look", f"call-{number}", None, ""), Result(b"", "ok", ""))
    Traffic(shared).sum_up(0.0, 1)
    session._call_finished(Call(owner, "look", "call-3", None, ""), Result(b"", "ok", ""))
    assert [call.id for call in recent.of("a", "")] == ["call-0", "call-1", "call-3"]
