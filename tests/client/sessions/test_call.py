"""A call against scripted servers: what is sent, how often, and what comes of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ors.client import AsyncORS, AsyncSession, Options, Task
from ors.errors import (
    BadRequest,
    CallOutcomeUnknown,
    NotFound,
    ServerFailed,
    SessionLost,
    ToolCallError,
    ToolFailed,
    TransportError,
    Unavailable,
)
from tests.requirements import proves
from tests.support.scripted_server import (
    Reply,
    Scripted,
    answer,
    events,
    head,
    result,
    scripted,
    stream,
    stream_headers,
)

QUICK = Options(backoff_seconds=0.001, backoff_limit_seconds=0.01, rejoins=5, retries=3)
CALL = "/env/call"


@asynccontextmanager
async def opened(script: Scripted, options: Options = QUICK) -> AsyncIterator[AsyncSession]:
    async with (
        AsyncORS(script.url, options=options) as client,
        client.environment("env").session(Task("env", {})) as session,
    ):
        yield session


def text(output: Any) -> str:
    return str(output.blocks[0].text)


@pytest.mark.parametrize("ours", [True, False])
async def test_a_call_is_sent_once_with_a_key(ours: bool) -> None:
    async with scripted(ours) as script, opened(script) as session:
        script.on(CALL, stream(("task_id", "t1"), ("end", result("hi")), ours=ours))
        assert text(await session.call_tool("echo", {"text": "hi"})) == "hi"
        (sent,) = script.asked(CALL)
        assert sent.json() == {"name": "echo", "input": {"text": "hi"}}
        assert sent.headers["x-session-id"] == "s1"
        assert "text/event-stream" in sent.headers["accept"]
        assert len(sent.headers["idempotency-key"]) >= 16


async def test_each_call_has_a_key_of_its_own() -> None:
    async with scripted(True) as script, opened(script) as session:
        script.on(CALL, stream(("task_id", "t1"), ("end", result()), ours=True))
        await session.call_tool("echo")
        await session.call_tool("echo")
        first, second = script.asked(CALL)
        assert first.headers["idempotency-key"] != second.headers["idempotency-key"]


@pytest.mark.parametrize("ours", [True, False])
async def test_a_stream_cut_after_its_task_id_is_rejoined_by_it(ours: bool) -> None:
    async with scripted(ours) as script, opened(script) as session:
        begun = Reply(head(200, stream_headers(ours)) + events(("task_id", "t1")), cut=True)
        script.on(CALL, begun, stream(("task_id", "t1"), ("end", result("late")), ours=ours))
        assert text(await session.call_tool("echo")) == "late"
        first, second = script.asked(CALL)
        assert "task_id" not in first.json()
        assert second.json()["task_id"] == "t1"
        assert first.headers["idempotency-key"] == second.headers["idempotency-key"]


@pytest.mark.parametrize("reply", [b"", b"HTTP/1.1 200 OK\r\nContent-", head(200, stream_headers(True), 500)])
async def test_a_call_cut_before_its_task_id_is_sent_again_to_a_server_that_honours_keys(
    reply: bytes,
) -> None:
    async with scripted(True) as script, opened(script) as session:
        script.on(CALL, Reply(reply, cut=True), stream(("task_id", "t1"), ("end", result("once"))))
        assert text(await session.call_tool("echo")) == "once"
        first, second = script.asked(CALL)
        assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
        assert first.body == second.body


@pytest.mark.parametrize("reply", [b"", b"HTTP/1.1 200 OK\r\nContent-", head(200, stream_headers(), 500)])
async def test_a_call_cut_before_its_task_id_is_never_sent_twice_to_any_other_server(reply: bytes) -> None:
    async with scripted() as script, opened(script) as session:
        script.on(CALL, Reply(reply, cut=True), stream(("task_id", "t1"), ("end", result("twice!"))))
        with pytest.raises(CallOutcomeUnknown):
            await session.call_tool("echo")
        assert len(script.asked(CALL)) == 1


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_a_gateway_error_may_mean_that_the_call_has_run(status: int) -> None:
    async with scripted() as script, opened(script) as session:
        script.on(CALL, answer({"detail": "bad gateway"}, status), stream(("end", result("twice!"))))
        with pytest.raises(CallOutcomeUnknown):
            await session.call_tool("echo")
        assert len(script.asked(CALL)) == 1


@pytest.mark.parametrize(("status", "headers"), [(429, {}), (503, {"Retry-After": "0"})])
async def test_a_call_that_was_turned_away_is_sent_again_to_any_server(
    status: int, headers: dict[str, str]
) -> None:
    async with scripted() as script, opened(script) as session:
        busy = answer({"detail": "busy"}, status, headers)
        script.on(CALL, busy, busy, stream(("task_id", "t"), ("end", result("at last"))))
        assert text(await session.call_tool("echo")) == "at last"


async def test_a_call_that_is_always_turned_away_ends_as_unavailable() -> None:
    async with scripted() as script, opened(script) as session:
        script.on(CALL, answer({"detail": "busy"}, 429, {"Retry-After": "0"}))
        with pytest.raises(Unavailable, match="busy"):
            await session.call_tool("echo")
        assert len(script.asked(CALL)) == QUICK.rejoins + 1


async def test_rejoining_ends_after_a_bounded_number_of_times() -> None:
    async with scripted(True) as script, opened(script) as session:
        script.on(CALL, Reply(head(200, stream_headers(True)) + events(("task_id", "t1")), cut=True))
        with pytest.raises(CallOutcomeUnknown, match="cannot be rejoined"):
            await session.call_tool("echo")
        assert len(script.asked(CALL)) == QUICK.rejoins + 1


async def test_a_result_that_the_server_has_dropped_is_unknown_not_failed() -> None:
    async with scripted() as script, opened(script) as session:
        begun = Reply(head(200, stream_headers()) + events(("task_id", "t1")), cut=True)
        script.on(CALL, begun, stream(("error", "unknown task_id")))
        with pytest.raises(CallOutcomeUnknown):
            await session.call_tool("echo")


async def test_a_tool_may_say_anything_in_its_first_stream() -> None:
    async with scripted() as script, opened(script) as session:
        script.on(CALL, stream(("task_id", "t"), ("error", "unknown task_id")))
        with pytest.raises(ToolFailed, match="unknown task_id"):
            await session.call_tool("echo")


async def test_a_silent_stream_is_taken_for_dead_and_rejoined() -> None:
    options = Options(heartbeat_seconds=0.1, backoff_seconds=0.001)
    async with scripted(True) as script, opened(script, options) as session:
        never = asyncio.Event()
        silent = Reply(head(200, stream_headers(True)) + events(("task_id", "t1")), hold=never)
        script.on(CALL, silent, stream(("task_id", "t1"), ("end", result("alive"))))
        assert text(await session.call_tool("echo")) == "alive"
        assert script.asked(CALL)[1].json()["task_id"] == "t1"


async def test_streams_that_were_held_for_long_use_up_no_rejoining() -> None:
    options = Options(heartbeat_seconds=0.05, backoff_seconds=0.001, rejoins=1)
    async with scripted(True) as script, opened(script, options) as session:
        never = asyncio.Event()
        silent = Reply(head(200, stream_headers(True)) + events(("task_id", "t1")), hold=never)
        script.on(CALL, silent, silent, silent, stream(("task_id", "t1"), ("end", result("alive"))))
        assert text(await session.call_tool("echo")) == "alive"
        assert len(script.asked(CALL)) == 4


async def test_pings_keep_a_slow_stream_alive() -> None:
    options = Options(heartbeat_seconds=0.5)
    async with scripted(True) as script, opened(script, options) as session:
        slow = head(200, stream_headers(True)) + events(("task_id", "t1"))
        script.on(CALL, Reply(slow, drip=(b": ping\n\n", 25), then=events(("end", result("slow"))), cut=True))
        assert text(await session.call_tool("echo")) == "slow"
        assert len(script.asked(CALL)) == 1


async def test_another_server_may_wait_for_setup_before_its_first_byte() -> None:
    options = Options(heartbeat_seconds=0.05)
    async with scripted() as script, opened(script, options) as session:
        go = asyncio.Event()
        done = events(("task_id", "t"), ("end", result("ready")))
        script.on(CALL, Reply(b"", hold=go, then=head(200, stream_headers(), len(done)) + done))
        call = asyncio.create_task(session.call_tool("echo"))
        await asyncio.wait({call}, timeout=0.3)  # six times what a begun stream may be silent
        assert not call.done()
        go.set()
        assert text(await call) == "ready"


@pytest.mark.parametrize("gone", ["Session lost: server restarted", "Session deleted", "Session expired"])
async def test_a_stream_that_says_the_session_is_over_loses_it(gone: str) -> None:
    async with scripted(True) as script, opened(script) as session:
        script.on(CALL, stream(("task_id", "t"), ("error", gone)))
        for _ in range(2):
            with pytest.raises(SessionLost, match=gone) as caught:
                await session.call_tool("echo")
            assert caught.value.sid == "s1"
        assert len(script.asked(CALL)) == 1


async def test_a_call_on_a_session_that_is_gone_is_session_lost() -> None:
    async with scripted() as script, opened(script) as session:
        script.on(CALL, answer({"detail": "Session deleted"}, 410))
        with pytest.raises(SessionLost, match="Session deleted"):
            await session.call_tool("echo")
        with pytest.raises(SessionLost):
            await session.get_prompt()


async def test_404_is_session_lost_when_a_ping_agrees() -> None:
    async with scripted() as script, opened(script) as session:
        script.on(CALL, answer({"detail": "Active environment not found"}, 404))
        script.on("/ping", answer({"detail": "Active environment not found"}, 404))
        with pytest.raises(SessionLost):
            await session.call_tool("echo")


async def test_404_is_session_lost_though_the_first_ping_breaks() -> None:
    async with scripted() as script, opened(script) as session:
        script.on(CALL, answer({"detail": "Active environment not found"}, 404))
        script.on("/ping", Reply(b"", cut=True), answer({"detail": "Active environment not found"}, 404))
        with pytest.raises(SessionLost):
            await session.call_tool("echo")


async def test_404_is_not_found_when_the_session_answers_pings() -> None:
    async with scripted() as script, opened(script) as session:
        script.on(CALL, answer({"detail": "no such environment"}, 404))
        with pytest.raises(NotFound, match="no such environment"):
            await session.call_tool("echo")


@pytest.mark.parametrize(("status", "error"), [(400, BadRequest), (422, BadRequest), (500, ServerFailed)])
async def test_a_refused_call_is_not_sent_again(status: int, error: type[Exception]) -> None:
    async with scripted(True) as script, opened(script) as session:
        script.on(CALL, answer({"detail": "no"}, status))
        with pytest.raises(error, match="no"):
            await session.call_tool("echo")
        assert len(script.asked(CALL)) == 1


async def test_ok_false_carries_its_reason() -> None:
    async with scripted() as script, opened(script) as session:
        refused = '{"ok": false, "error": "no such tool", "reason": "not_found"}'
        script.on(CALL, stream(("task_id", "t"), ("end", refused)))
        with pytest.raises(ToolCallError, match="no such tool") as caught:
            await session.call_tool("echo")
        assert caught.value.reason == "not_found"


async def test_no_reward_stays_none_and_zero_stays_zero() -> None:
    async with scripted() as script, opened(script) as session:
        script.on(
            CALL,
            stream(("end", result())),
            stream(("end", result(reward=None))),
            stream(("end", result(reward=0))),
        )
        rewards = [(await session.call_tool("echo")).reward for _ in range(3)]
        assert rewards == [None, None, 0.0]


async def test_keys_that_are_missing_or_unknown_do_no_harm() -> None:
    async with scripted() as script, opened(script) as session:
        output = (
            '{"ok": true, "new": 1, "output": {"later": 2, "blocks": [{"text": "a", "new": 1},'
            ' {"type": "hologram"}, {"type": "image", "data": "aGk=", "mimeType": "image/png"}]}}'
        )
        script.on(CALL, stream(("task_id", "t"), ("end", output)))
        found = await session.call_tool("echo")
        assert [block.type for block in found.blocks] == ["text", "image"]
        assert (found.metadata, found.reward, found.finished) == (None, None, False)


@pytest.mark.parametrize(
    "wrong", ["not json", "[1]", '{"ok": true}', '{"ok": true, "output": {"reward": "x"}}']
)
async def test_what_is_not_a_result_is_a_failed_tool(wrong: str) -> None:
    async with scripted() as script, opened(script) as session:
        script.on(CALL, stream(("task_id", "t"), ("end", wrong)))
        with pytest.raises(ToolFailed, match="not valid"):
            await session.call_tool("echo")


@proves("client.sse")
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
async def test_any_event_stream_by_the_standard_is_read(end: bytes) -> None:
    async with scripted() as script, opened(script) as session:
        lines = [
            b"",
            b": hello",
            b"retry",
            b"event:later",
            b"data: ?",
            b"",
            b"event: task_id",
            b"data: t1",
            b"",
        ]
        lines += [b"event:chunk", b"data:" + result("a b").encode()[:30], b""]
        lines += [b"event: end", b"data: " + result("a b").encode()[30:], b"", b""]
        body = end.join(lines)
        script.on(CALL, Reply(head(200, stream_headers(), len(body)) + body))
        assert text(await session.call_tool("echo")) == "a b"


@pytest.mark.parametrize("given", [None, "text", [1], 3, {1: "a"}])
async def test_an_input_that_is_no_object_is_refused_without_asking(given: Any) -> None:
    async with scripted() as script, opened(script) as session:
        with pytest.raises(ToolCallError):
            await session.call_tool("echo", given)
        assert script.asked(CALL) == []


async def test_a_call_of_an_attached_session_is_rejoined_by_its_task_id() -> None:
    async with scripted() as script, AsyncORS(script.url) as client:
        script.on(CALL, stream(("task_id", "t9"), ("end", result("found"))))
        session = client.environment("env").attach("s9")
        assert text(await session.rejoin("t9")) == "found"
        (sent,) = script.asked(CALL)
        assert (sent.headers["x-session-id"], sent.json()["task_id"]) == ("s9", "t9")


async def test_a_cancelled_call_lets_go_of_its_connection() -> None:
    async with scripted(True) as script, opened(script) as session:
        begun = asyncio.Event()
        hanging = Reply(head(200, stream_headers(True)) + events(("task_id", "t1")), hold=asyncio.Event())
        script.on(CALL, hanging, stream(("task_id", "t2"), ("end", result("next"))))
        call = asyncio.create_task(session.call_tool("echo", on_task_id=lambda _: begun.set()))
        await begun.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert text(await session.call_tool("echo")) == "next"


async def test_a_server_that_cannot_be_reached_has_not_seen_the_call() -> None:
    async with scripted() as script:
        client = AsyncORS(script.url, options=QUICK)
        session = await client.environment("env").session(Task("env", {})).start()
        await client.environments.close()
    with pytest.raises(TransportError, match="cannot be reached"):
        await session.call_tool("echo")
    await client.close()


async def test_connections_are_used_again() -> None:
    async with scripted() as script, opened(script) as session:
        script.on(CALL, stream(("task_id", "t"), ("end", result())))
        for _ in range(10):
            await session.call_tool("echo")
        assert script.connections == 1
