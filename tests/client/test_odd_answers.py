"""Answers that no server should give: a typed error, at once, within bounds, and nothing left behind."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ors._protocol import CallReader
from ors.client import AsyncEnvironment, AsyncORS, Options, Task
from ors.client.transports.connection import MAX_HEAD_BYTES
from ors.errors import (
    BadRequest,
    CallOutcomeUnknown,
    ORSError,
    ResponseError,
    ServerFailed,
    ToolFailed,
    TransportError,
)
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

QUICK = Options(retries=1, rejoins=2, backoff_seconds=0.001, backoff_limit_seconds=0.01)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@asynccontextmanager
async def client_of(script: Scripted, options: Options = QUICK) -> AsyncIterator[AsyncORS]:
    """A client; nothing may be raised inside the loop."""
    raised: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
    async with AsyncORS(script.url, options=options) as client:
        yield client
    await asyncio.sleep(0)
    assert raised == []


def switching(more: bytes = b"") -> bytes:
    return b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n" + more


@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        (switching(), ResponseError, "answered 101"),
        (switching(b"hello, and then some"), ResponseError, "answered 101"),
        (switching(OK), ResponseError, "answered 101"),
        (b"HTTP/1.1 101 X\r\nContent-Length: 5\r\n\r\n", ResponseError, "answered 101"),
        (b"HTTP/1.1 000 X\r\nContent-Length: 0\r\n\r\n", ResponseError, "answered 0"),
        (b"HTTP/1.1 000 X\r\nContent-Length: 5\r\n\r\nhello", ResponseError, "answered 0"),
        (b"HTTP/1.1 304 X\r\n\r\n", ResponseError, "answered 304"),
        (b"HTTP/1.1 308 X\r\nContent-Length: 0\r\n\r\n", ResponseError, "answered 308"),
        (
            b"HTTP/1.1 308 X\r\nLocation: http://[::1\r\nContent-Length: 0\r\n\r\n",
            ResponseError,
            "redirected",
        ),
        (b"HTTP/1.1 204 X\r\n\r\n", TransportError, "answer is empty"),
        (b'HTTP/1.1 422 X\r\nContent-Length: 24\r\n\r\n{"detail": [{"loc": 5}]}', BadRequest, "not valid"),
        (b"\x16\x03\x01\x00\x00\r\n\r\n", TransportError, "connection broke"),
    ],
)
async def test_an_odd_answer_is_a_typed_error(data: bytes, kind: type[ORSError], words: str) -> None:
    async with scripted() as script, client_of(script) as client:
        script.on("/health", Reply(data))
        with pytest.raises(kind, match=words):
            await client.health()
        script.on("/health", answer({"status": "ok"}))
        assert await client.health() == {"status": "ok"}


@pytest.mark.parametrize("status", [101, 204, 304])
async def test_a_call_that_is_answered_oddly_is_an_error(status: int) -> None:
    async with scripted() as script, client_of(script) as client:
        session = await client.environment("env").session(Task("env", {})).start()
        script.on("/env/call", Reply(b"HTTP/1.1 %d X\r\n\r\n" % status))
        with pytest.raises(ResponseError, match=f"answered {status}"):
            await session.call_tool("act")


async def test_interim_answers_are_skipped_with_their_headers() -> None:
    async with scripted() as script, client_of(script) as client:
        early = b"HTTP/1.1 103 Early\r\nTransfer-Encoding: chunked\r\n\r\n"
        script.on("/health", Reply(b"HTTP/1.1 100 Continue\r\n\r\n" + early + OK))
        assert await client.health() == {}


async def test_an_interim_answer_alone_is_no_answer() -> None:
    async with scripted() as script, client_of(script) as client:
        script.on("/health", Reply(b"HTTP/1.1 100 Continue\r\n\r\n", cut=True), Reply(OK))
        assert await client.health() == {}
        assert len(script.asked("/health")) == 2


async def test_a_second_answer_that_nobody_asked_for_does_not_change_the_first() -> None:
    async with scripted() as script, client_of(script) as client:
        second = b'HTTP/1.1 500 X\r\nContent-Length: 14\r\n\r\n{"detail":"x"}'
        script.on("/health", Reply(OK + second))
        assert await client.health() == {}


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * (2 * MAX_HEAD_BYTES),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: "
        + b"x" * (2 * MAX_HEAD_BYTES),
    ],
    ids=["head", "trailer"],
)
async def test_headers_without_end_are_read_no_further(data: bytes) -> None:
    async with scripted() as script, client_of(script) as client:
        never = asyncio.Event()
        script.on("/health", Reply(data, hold=never))
        with pytest.raises(TransportError, match="bytes of headers"):
            await client.health()


CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
FOR_EVER = 10**9


@pytest.mark.parametrize("status", [b"100", b"199"])
@pytest.mark.parametrize("ours", [True, False])
async def test_interim_answers_without_end_are_an_error_of_every_request(status: bytes, ours: bool) -> None:
    async with scripted(ours) as script, client_of(script) as client:
        session = await client.environment("env").session(Task("env", {})).start()
        endless = Reply(b"", drip=(CONTINUE.replace(b"100", status), FOR_EVER))
        for path in ("/health", "/env/prompt", "/env/call"):
            script.on(path, endless)
        with pytest.raises(TransportError, match="over 5 interim responses"):
            await client.health()
        with pytest.raises(TransportError, match="over 5 interim responses"):
            await session.get_prompt()
        with pytest.raises(CallOutcomeUnknown, match="over 5 interim responses"):
            await session.call_tool("act")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        CONTINUE,
        b"HTTP/1.1 200 OK\r\nX: ",
        b"HTTP/1.1 500 Oops\r\nContent-Length: 1000\r\n\r\n{",
    ],
    ids=["nothing", "interim", "head", "error"],
)
async def test_a_call_that_gets_no_answer_ends_at_its_time_limit(data: bytes) -> None:
    limited = Options(retries=1, rejoins=2, backoff_seconds=0.001, heartbeat_seconds=0.2, call_seconds=0.3)
    async with scripted() as script, client_of(script, limited) as client:
        session = await client.environment("env").session(Task("env", {})).start()
        script.on("/env/call", Reply(data, hold=asyncio.Event()))
        with pytest.raises(CallOutcomeUnknown, match="the call may have run"):
            await session.call_tool("act")


# ── Types ────────────────────────────────────────────────────────────────────────────────────────

BLOCK = {"text": "x", "type": "text"}


def output(**more: Any) -> dict[str, Any]:
    return {"ok": True, "output": {"blocks": [BLOCK], **more}}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (output(reward="NaN"), "reward: Input should be a valid number"),
        (output(reward="1.5"), "reward: Input should be a valid number"),
        (output(reward=True), "reward: Input should be a valid number"),
        (output(reward=[1]), "reward: Input should be a valid number"),
        ('{"ok": true, "output": {"blocks": [], "reward": 1e999}}', "'reward' is not a finite number"),
        (output(reward=10**400), "reward: Input should be a valid number"),
        (output(finished="no"), "finished: Input should be a valid boolean"),
        (output(finished=0), "finished: Input should be a valid boolean"),
        (output(metadata="x"), "'metadata' is not an object"),
        (output(blocks="x"), "blocks: Input should be a valid list"),
        (output(blocks=["x"]), "blocks.0.TextBlock: Input should be a valid dictionary"),
        (output(blocks=[{"type": "text"}]), "blocks.0.TextBlock.text: Field required"),
        (
            output(blocks=[{"type": "image", "data": "", "mimeType": 5}]),
            ".*ImageBlock.mimeType: Input should be a valid string",
        ),
        ({"ok": "true", "output": {"blocks": []}}, "'ok' is not true or false"),
        ({"ok": 1, "output": {"blocks": []}}, "'ok' is not true or false"),
        ({"ok": True, "output": []}, ".*'output' is not an object"),
        ({"ok": True}, ".*'output' is not an object"),
        ([], "it is not an object"),
    ],
)
async def test_a_result_of_wrong_types_is_an_error_that_names_the_field(value: Any, words: str) -> None:
    async with scripted() as script, client_of(script) as client:
        session = await client.environment("env").session(Task("env", {})).start()
        text = value if isinstance(value, str) else json.dumps(value)
        script.on("/env/call", stream(("task_id", "t1"), ("end", text)))
        with pytest.raises(ToolFailed, match=f"the result is not valid: {words}"):
            await session.call_tool("act")


async def test_what_a_result_leaves_out_has_a_default() -> None:
    async with scripted() as script, client_of(script) as client:
        session = await client.environment("env").session(Task("env", {})).start()
        given = {"ok": True, "output": {"reward": 3, "finished": None, "new": 1}}
        script.on("/env/call", stream(("task_id", "t1"), ("end", json.dumps(given))))
        made = await session.call_tool("act")
        assert made.model_dump() == {"blocks": [], "metadata": None, "reward": 3.0, "finished": False}
        assert type(made.reward) is float


async def test_blocks_of_unknown_kinds_are_left_out_and_taken_for_no_other() -> None:
    sound = {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"}
    image = {"type": "image", "data": "iVBORw0=", "mimeType": "image/png", "detail": {"alt": "dot"}}
    async with scripted() as script, client_of(script) as client:
        session = await client.environment("env").session(Task("env", {})).start()
        given = output(
            blocks=[sound, {"type": ["text"], "text": "x"}, {"type": None, "data": ""}, image, BLOCK]
        )
        script.on("/env/call", stream(("task_id", "t1"), ("end", json.dumps(given))))
        made = await session.call_tool("act")
    assert [block.model_dump() for block in made.blocks] == [image, {**BLOCK, "detail": None}]


def env(client: AsyncORS) -> AsyncEnvironment:
    return client.environment("env")


@pytest.mark.parametrize(
    ("path", "value", "ask", "words"),
    [
        ("/health", "ok", lambda client: client.health(), "not an object"),
        ("/env/num_tasks", {"num_tasks": "5"}, lambda c: env(c).num_tasks("x"), "an integer"),
        ("/env/num_tasks", {"num_tasks": 5.5}, lambda c: env(c).num_tasks("x"), "an integer"),
        ("/env/num_tasks", {"num_tasks": True}, lambda c: env(c).num_tasks("x"), "an integer"),
        ("/env/splits", [{"name": 5}], lambda c: env(c).list_splits(), "not a string"),
        ("/env/task", {"task": "x"}, lambda c: env(c).get_task("x", 0), "not an object"),
        ("/env/tasks", {"tasks": ["x"]}, lambda c: env(c).list_tasks("x"), "not a list of tasks"),
        ("/env/tasks", {"tasks": [{}], "env_name": 5}, lambda c: env(c).list_tasks("x"), "env_name"),
        (
            "/env/tools",
            {"tools": [{"name": "a", "description": 5}]},
            lambda c: env(c).list_tools(),
            "description",
        ),
        ("/env/tools", [], lambda c: env(c).terminal_tool(), "not an object"),
        ("/env/tools", None, lambda c: env(c).terminal_tool(), "not an object"),
        ("/create_session", {"sid": None}, lambda c: env(c).session(Task("env", {})).start(), "sid"),
    ],
)
async def test_an_answer_of_wrong_types_is_an_error(path: str, value: Any, ask: Any, words: str) -> None:
    async with scripted() as script, client_of(script) as client:
        script.on(path, answer(value))
        with pytest.raises(ServerFailed, match=words):
            await ask(client)


@pytest.mark.parametrize("value", [None, {"blocks": []}, "x", ["x"], [{"type": "text", "text": 5}]])
async def test_a_prompt_of_wrong_types_is_an_error(value: Any) -> None:
    async with scripted() as script, client_of(script) as client:
        session = await client.environment("env").session(Task("env", {})).start()
        script.on("/env/prompt", answer(value))
        with pytest.raises(ServerFailed, match="not valid"):
            await session.get_prompt()


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (stream(("task_id", "s1"), ("end", "{oops")), TransportError, "not JSON"),
        (stream(("task_id", "s1"), ("error", "no place")), ServerFailed, "no place"),
        (stream(("end", '{"sid": 5}')), TransportError, "no session id"),
    ],
)
async def test_an_id_that_is_none_is_an_error(reply: Reply, kind: type[ORSError], words: str) -> None:
    async with scripted() as script, client_of(script) as client:
        script.on("/create_session", reply)
        with pytest.raises(kind, match=words):
            await client.environment("env").session(Task("env", {})).start()
        assert script.asked("/create") == []


# ── Size ─────────────────────────────────────────────────────────────────────────────────────────


async def test_an_answer_over_the_limit_is_an_error_that_says_so() -> None:
    small = Options(answer_bytes=1000)
    async with scripted() as script, client_of(script, small) as client:
        script.on("/health", answer({"status": "x" * 2000}))
        with pytest.raises(ResponseError, match=r"limit of 1000 bytes; Options\(answer_bytes") as caught:
            await client.health()
        assert caught.value.reason == "limit"
        assert len(script.asked("/health")) == 1


async def test_an_answer_without_end_is_read_no_further_than_the_limit() -> None:
    small = Options(answer_bytes=100_000)
    async with scripted() as script, client_of(script, small) as client:
        never = asyncio.Event()
        script.on("/health", Reply(head(200, {}, 10**9) + b" " * 300_000, hold=never))
        with pytest.raises(ResponseError, match="limit of 100000 bytes"):
            await client.health()


async def test_a_result_over_the_limit_fails_once_and_the_session_goes_on() -> None:
    small = Options(answer_bytes=100_000)
    async with scripted() as script, client_of(script, small) as client:
        session = await client.environment("env").session(Task("env", {})).start()
        never = asyncio.Event()
        body = events(("task_id", "t1"), *[("chunk", "x" * 4000)] * 60)
        script.on("/env/call", Reply(head(200, stream_headers(ours=True)) + body, hold=never))
        with pytest.raises(ToolFailed, match="the result is over this client's limit") as caught:
            await session.call_tool("act")
        assert caught.value.reason == "limit"
        script.on("/env/call", stream(("task_id", "t2"), ("end", result("small"))))
        assert (await session.call_tool("act")).blocks[0].text == "small"  # type: ignore[union-attr]


# ── What broke off ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("silent", [False, True], ids=["cut", "silent"])
async def test_what_came_before_a_break_is_let_go_at_once(silent: bool) -> None:
    patient = Options(rejoins=6, backoff_seconds=0.001, backoff_limit_seconds=0.01, heartbeat_seconds=0.2)
    async with scripted(ours=True) as script, client_of(script, patient) as client:
        session = await client.environment("env").session(Task("env", {})).start()
        part = head(200, stream_headers(ours=True), 10**6) + events(
            ("task_id", "t1"), ("chunk", "x" * 10_000)
        )
        never = asyncio.Event()
        broken = Reply(part, hold=never) if silent else Reply(part, cut=True)
        script.on("/env/call", *[broken] * 4, stream(("task_id", "t1"), ("end", result("done")), ours=True))
        gc.collect()
        gc.disable()
        try:
            output = await session.call_tool("act")
            left = sum(type(one) is CallReader for one in gc.get_objects())
        finally:
            gc.enable()
        assert output.blocks[0].text == "done"  # type: ignore[union-attr]
        assert len(script.asked("/env/call")) == 5
        assert left == 0


async def test_a_request_that_broke_is_let_go_at_once() -> None:
    async with scripted() as script, client_of(script, Options(retries=9, backoff_seconds=0.001)) as client:
        script.on("/health", *[Reply(b"", cut=True)] * 5, answer({"status": "ok"}))
        gc.collect()
        gc.disable()
        try:
            await client.health()
            left = sum(type(one).__name__ == "_Exchange" for one in gc.get_objects())
        finally:
            gc.enable()
        assert left == 0
