"""Opening, keeping, losing and ending sessions, against scripted servers."""

import asyncio
import base64
import gc
import json
import logging
from typing import Any

import pytest

from ors.client import AsyncORS, Options, Task
from ors.errors import BadRequest, ServerFailed, SessionLost, TransportError
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

QUICK = Options(backoff_seconds=0.001, backoff_limit_seconds=0.01, retries=3)
PINGING = Options(ping_seconds=0.02, ping_failures=3, backoff_seconds=0.001)


async def start(script: Scripted, options: Options = QUICK, **kwargs: Any) -> Any:
    client = AsyncORS(script.url, options=options)
    given = kwargs or {"task": Task("env", {"n": 1})}
    return await client.environment("env").session(**given).start()


@pytest.mark.parametrize(
    "reply",
    [
        answer({"sid": "s7"}),
        stream(("task_id", "s7"), ("end", "")),
        stream(("task_id", "s7"), ("end", '{"sid": "s7"}')),
    ],
)
async def test_both_forms_of_create_session_are_understood(reply: Reply) -> None:
    async with scripted() as script:
        script.on("/create_session", reply)
        session = await start(script)
        assert session.sid == "s7"
        assert script.asked("/create")[0].headers["x-session-id"] == "s7"


@proves("client.create")
async def test_split_and_index_go_with_the_environments_name() -> None:
    async with scripted() as script:
        await start(script, split="train", index=0)
        assert script.asked("/create")[0].json() == {"env_name": "env", "split": "train", "index": 0}


@proves("client.create")
async def test_secrets_go_in_body_and_header() -> None:
    async with scripted() as script:
        await start(script, task=Task("env", {}), secrets={"key": "sk-ä"})
        (sent,) = script.asked("/create")
        assert sent.json()["secrets"] == {"key": "sk-ä"}
        assert json.loads(base64.b64decode(sent.headers["x-secrets"])) == {"key": {"value": "sk-ä"}}


@proves("client.create")
async def test_secrets_go_in_the_header_alone_to_a_server_that_refuses_them_in_the_body() -> None:
    async with scripted() as script:
        refusal = [{"type": "extra_forbidden", "loc": ["body", "secrets"], "msg": "Extra", "input": "sk"}]
        script.on("/create", answer({"detail": refusal}, 422), answer({"sid": "s1"}))
        client = AsyncORS(script.url)
        for _ in range(2):
            await client.environment("env").session(Task("env", {}), {"key": "sk"}).start()
        bodies = [sent.json() for sent in script.asked("/create")]
        assert ["secrets" in body for body in bodies] == [True, False, False]
        assert all("x-secrets" in sent.headers for sent in script.asked("/create"))
        await client.close()


async def test_a_refusal_that_is_about_something_else_is_final() -> None:
    async with scripted() as script:
        script.on("/create", answer({"detail": [{"loc": ["body", "index"], "msg": "no"}]}, 422))
        with pytest.raises(BadRequest, match=r"body\.index"):
            await start(script, task=Task("env", {}), secrets={"key": "sk"})
        assert len(script.asked("/create")) == 1


async def test_a_create_that_broke_off_may_have_come_through() -> None:
    async with scripted() as script:
        script.on("/create", Reply(b"", cut=True), answer({"detail": "Session already exists"}, 400))
        session = await start(script)
        assert session.sid == "s1"


async def test_an_id_that_somebody_else_has_is_an_error() -> None:
    async with scripted() as script:
        script.on("/create", answer({"detail": "Session already exists"}, 400))
        with pytest.raises(BadRequest, match="already exists"):
            await start(script)


@pytest.mark.parametrize("status", [429, 503])
async def test_a_full_server_is_asked_again_to_open_a_session(status: int) -> None:
    async with scripted() as script:
        full = answer({"detail": "full"}, status, {"Retry-After": "0"})
        script.on("/create", full, full, answer({"sid": "s1"}))
        await start(script)
        assert len(script.asked("/create")) == 3


async def test_a_setup_that_takes_long_is_waited_for() -> None:
    async with scripted() as script:
        busy = answer({}, 503, {"Retry-After": "0", "X-Backend-State": "starting"})
        prompt = answer([{"text": "go", "type": "text"}])
        script.on("/env/prompt", *[busy] * (QUICK.retries + 3), prompt)
        session = await start(script)
        assert (await session.get_prompt())[0].text == "go"


async def test_leaving_the_block_deletes_the_session_once() -> None:
    async with scripted() as script, AsyncORS(script.url) as client:
        async with client.environment("env").session(Task("env", {})) as session:
            pass
        await session.close()
        assert len(script.asked("/delete")) == 1
        with pytest.raises(SessionLost, match="closed"):
            await session.call_tool("echo")


async def test_leaving_an_attached_session_leaves_it_open() -> None:
    async with scripted() as script, AsyncORS(script.url) as client:
        async with client.environment("env").attach("s9") as session:
            assert session.sid == "s9"
        assert script.asked("/delete") == []
        await session.close()
        assert script.asked("/delete")[0].headers["x-session-id"] == "s9"


async def test_attaching_to_a_session_that_is_gone_is_session_lost() -> None:
    async with scripted() as script, AsyncORS(script.url) as client:
        script.on("/ping", answer({"detail": "not found"}, 404))
        with pytest.raises(SessionLost):
            await client.environment("env").attach("s9").start()


async def test_a_session_that_cannot_be_deleted_ends_quietly(caplog: pytest.LogCaptureFixture) -> None:
    async with scripted() as script:
        session = await start(script)
        script.on("/delete", answer({"detail": "teardown failed"}, 500))
        with caplog.at_level(logging.WARNING, "ors.client"):
            await session.close()
        assert "s1 could not be deleted" in caplog.text


async def test_a_session_that_is_not_open_says_so() -> None:
    client = AsyncORS()
    session = client.environment("env").session(Task("env", {}))
    with pytest.raises(RuntimeError, match="start"):
        await session.call_tool("echo")


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"split": "train"},
        {"index": 1},
        {"task": Task("env", {}), "split": "train", "index": 1},
    ],
)
def test_a_session_is_of_one_task(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"provided together|either task"):
        AsyncORS().environment("env").session(**given)


@proves("client.pings")
async def test_an_idle_session_is_pinged_again_and_again() -> None:
    async with scripted() as script:
        session = await start(script, PINGING)
        await script.until_asked("/ping", 3)
        assert all(sent.headers["x-session-id"] == "s1" for sent in script.asked("/ping"))
        await session.close()


@proves("client.pings")
async def test_failed_pings_are_forgiven_when_one_gets_through() -> None:
    async with scripted() as script:
        bad = answer({"detail": "?"}, 500)
        script.on("/ping", bad, Reply(b"", cut=True), answer({}), bad, bad, answer({}))
        session = await start(script, PINGING)
        await script.until_asked("/ping", 8)
        script.on("/env/prompt", answer([]))
        assert await session.get_prompt() == []
        await session.close()


@proves("client.pings")
@pytest.mark.parametrize("status", [404, 410])
async def test_a_ping_that_finds_no_session_loses_it_for_pending_and_later_calls(status: int) -> None:
    async with scripted(True) as script:
        script.on(
            "/env/call",
            Reply(head(200, stream_headers(True)) + events(("task_id", "t")), hold=asyncio.Event()),
        )
        script.on("/ping", answer({"detail": "Session gone"}, status, {"ORS-Reason": "shutdown"}))
        session = await start(script, PINGING)
        with pytest.raises(SessionLost, match="Session gone") as caught:
            await session.call_tool("echo")
        assert (caught.value.sid, caught.value.reason) == ("s1", "shutdown")
        with pytest.raises(SessionLost) as again:
            await session.call_tool("echo")
        assert again.value.reason == "shutdown"
        await session.close()
        assert script.asked("/delete") == []


@proves("client.pings")
async def test_a_session_is_lost_after_many_failed_pings_in_a_row() -> None:
    async with scripted(True) as script:
        script.on("/env/prompt", Reply(b"", hold=asyncio.Event()))
        script.on("/ping", answer({"detail": "dead"}, 500))
        session = await start(script, PINGING)
        with pytest.raises(SessionLost, match="3 pings in a row failed: dead"):
            await session.get_prompt()
        assert len(script.asked("/ping")) == 3


async def test_a_session_in_use_needs_no_pings() -> None:
    async with scripted(True) as script:
        script.on("/env/call", stream(("task_id", "t"), ("end", result())))
        session = await start(script, Options(ping_seconds=2))  # as long as a call may take on a busy machine
        ended = asyncio.get_running_loop().time() + 3
        while asyncio.get_running_loop().time() < ended:
            await session.call_tool("echo")
        assert script.asked("/ping") == []
        await session.close()


async def test_a_session_that_nobody_has_any_more_is_not_kept_alive() -> None:
    async with scripted(True) as script:
        script.on("/env/prompt", answer([]))
        kept = await start(script, PINGING)
        client = kept.env
        script.on("/create_session", answer({"sid": "dropped"}))
        dropped = await client.session(Task("env", {})).start()
        assert dropped.sid == "dropped"
        del dropped
        gc.collect()
        script.requests.clear()
        await script.until_asked("/ping", 3)
        assert {sent.headers["x-session-id"] for sent in script.asked("/ping")} == {"s1"}
        await kept.close()


async def test_a_session_that_is_kept_anew_is_not_pinged_twice_as_often() -> None:
    async with scripted() as script, AsyncORS(script.url, options=Options(ping_seconds=0.1)) as client:
        session = client.environment("env").attach("s9")
        for _ in range(5):
            async with session:
                pass
        async with session:
            script.requests.clear()
            started = asyncio.get_running_loop().time()
            await script.until_asked("/ping", 5)
            assert asyncio.get_running_loop().time() - started > 0.3


async def test_cancelling_a_call_is_not_mistaken_for_losing_the_session() -> None:
    async with scripted(True) as script:
        script.on(
            "/env/call",
            Reply(head(200, stream_headers(True)) + events(("task_id", "t")), hold=asyncio.Event()),
        )
        session = await start(script)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await session.call_tool("echo")
        call = asyncio.create_task(session.call_tool("echo"))
        await script.until_asked("/env/call", 2)
        session.lose("gone")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call


async def test_a_failed_setup_is_told_with_its_reason() -> None:
    async with scripted() as script:
        script.on("/env/prompt", answer({"detail": "setup failed: no disk"}, 500))
        session = await start(script)
        with pytest.raises(ServerFailed, match="no disk"):
            await session.get_prompt()


async def test_a_closed_client_no_longer_pings() -> None:
    async with scripted() as script:
        client = AsyncORS(script.url, options=PINGING)
        session = await client.environment("env").session(Task("env", {})).start()
        await script.until_asked("/ping")
        await client.close()
        assert asyncio.all_tasks() - {asyncio.current_task()} == {
            task for task in asyncio.all_tasks() if "serve" in repr(task.get_coro())
        }
        assert session.kept


async def test_a_server_that_vanishes_while_a_session_opens_is_a_transport_error() -> None:
    async with scripted() as script:
        script.on("/create", Reply(b"", cut=True))
        with pytest.raises(TransportError):
            await start(script)
        assert len(script.asked("/create")) == QUICK.retries + 1


@pytest.mark.parametrize(
    "given", [(("train", 0), {}), (("train",), {"index": 0}), ((), {"split": "train", "index": 0})]
)
async def test_a_task_is_named_by_its_split_and_index(given: Any) -> None:
    async with scripted() as script, AsyncORS(script.url, options=QUICK) as client:
        words, named = given
        async with client.environment("env").session(*words, **named) as session:
            assert (session.split, session.index) == ("train", 0)
        (created,) = script.asked("/create")
        assert created.json() == {"env_name": "env", "split": "train", "index": 0}


@pytest.mark.parametrize("given", [({"n": 1},), (5,), (["train", 0],)])
async def test_something_else_than_a_task_is_refused_with_what_is_right(given: Any) -> None:
    with pytest.raises(TypeError, match=r'as in session\("train", 0\)'):
        AsyncORS("http://127.0.0.1:9").environment("env").session(*given)


BAD_IDS = ["", " ", "a\nb", "a\r\nX-API-Key: k", "a\x00", "日", "x" * 257]


@pytest.mark.parametrize("sid", BAD_IDS)
async def test_an_id_that_cannot_be_sent_is_refused_before_anything_is(sid: str) -> None:
    async with scripted() as script, AsyncORS(script.url, options=QUICK) as client:
        with pytest.raises(BadRequest, match="not a valid session id: "):
            client.environment("env").attach(sid)
        assert script.requests == []


@pytest.mark.parametrize("sid", BAD_IDS)
@pytest.mark.parametrize("streams", [True, False])
async def test_an_id_of_a_server_that_cannot_be_sent_is_the_servers_failure(sid: str, streams: bool) -> None:
    async with scripted() as script, AsyncORS(script.url, options=QUICK) as client:
        sent = [("task_id", "x"), ("end", json.dumps({"sid": sid}))]
        script.on("/create_session", stream(*sent) if streams else answer({"sid": sid}))
        with pytest.raises((ServerFailed, TransportError), match="session id"):
            await client.environment("env").session(Task("env", {})).start()
        assert {request.path for request in script.requests} == {"/create_session"}
