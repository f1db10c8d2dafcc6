"""The messages of MCP: what is read, what is refused, and what an episode answers."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from ors.mcp import LONGEST_NAME, OVER, Message, Refused, event, read, shown_name
from ors.providers.messages import ToolMessage, UserMessage
from ors.rollouts import Conversation, TaskRef
from ors.rollouts.agents.coding.seat import Reply, Seat
from ors.types import Blocks, ImageBlock, JSONObject, TextBlock, ToolSpec

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
LONG = "tool." + "x" * 80


SCHEMA: JSONObject = {"properties": {"x": {"$ref": "#/$defs/x"}}, "$defs": {"x": {}}}
TOOLS = [
    ToolSpec(name=LONG, description="Long.", input_schema=SCHEMA),
    ToolSpec(name="answer", description="The end."),
]
PROMPT: Blocks = [TextBlock("Solve it."), ImageBlock(data="aGk=", mimeType="image/png")]
DONE: Blocks = [TextBlock("done")]


class Played:
    """A seat, and its driver, which gives each call `blocks` once the gate is open."""

    def __init__(self, blocks: Blocks = DONE) -> None:
        self.seat, self.gate, self.blocks = Seat(), asyncio.Event(), blocks
        self.calls: list[tuple[str, Any]] = []
        self.gate.set()

    async def drive(self) -> None:
        conversation = Conversation(TaskRef("some", "train", 0), messages=[UserMessage(PROMPT)])
        async with self.seat.joining(conversation, TOOLS):
            while True:
                (call,) = (await self.seat.reply(conversation, TOOLS)).calls
                self.calls.append((call.name, call.input))
                await self.gate.wait()
                told = ToolMessage(call.id, call.name, self.blocks, reward=0.625, metadata={"secret": 1})
                if call.input.get("refuse"):
                    told = ToolMessage(call.id, call.name, [TextBlock("Try again.")], ok=False)
                told = replace(told, finished=told.ok)
                conversation.messages.append(told)

    @asynccontextmanager
    async def driven(self) -> AsyncIterator[Seat]:
        driving = asyncio.ensure_future(self.drive())
        yield self.seat
        driving.cancel()


def body(method: str, id: Any = 7, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode()


def answered(method: str, played: Played | None = None, **params: Any) -> dict[str, Any]:
    """The result of a request, or its error."""

    async def ask() -> bytes:
        async with (played or Played()).driven() as seat:
            return (await seat.heard(body(method, **params))).body

    value: dict[str, Any] = json.loads(asyncio.run(ask()))
    assert value["id"] == 7
    return dict(value["result"] if "result" in value else value["error"])


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2031-01-01"])
def test_a_handshake_gets_its_revision_or_the_newest_and_the_prompt(version: str) -> None:
    told = answered("initialize", protocolVersion=version)
    assert told["protocolVersion"] == (version if version < "2026" else "2025-11-25")
    assert told["capabilities"] == {"tools": {}, "prompts": {}}
    assert told["instructions"] == "Solve it.\n[image of type image/png]"
    assert "resultType" not in told


def test_a_stateless_client_discovers_the_same() -> None:
    told = answered("server/discover", _meta=META)
    assert told["supportedVersions"] == ["2026-07-28"]
    assert (told["resultType"], told["cacheScope"], told["instructions"][:6]) == (
        "complete",
        "private",
        "Solve ",
    )


def test_tools_have_names_and_schemas_that_models_take() -> None:
    long, last = answered("tools/list", _meta=META)["tools"]
    assert len(long["name"]) <= LONGEST_NAME
    assert long["name"].startswith("tool_xx")
    assert long["title"] == LONG
    assert long["inputSchema"] == {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/x"}},
        "$defs": {"x": {}},
    }
    assert last == {
        "name": "answer",
        "description": "The end.",
        "inputSchema": {"type": "object", "properties": {}},
    }


def test_names_that_differ_stay_different() -> None:
    names = ["good-name_1", "a.b", "a/b", "a b", "ä", "ö", "x" * 51, "x" * 52]
    shown = [shown_name(name) for name in names]
    assert shown[0] == names[0]
    assert len({*shown}) == len(names)
    assert all(set(each) <= {*"abcdefghijklmnopqrstuvwxyz0123456789_-"} for each in shown)


def test_the_prompt_is_the_prompt_called_task() -> None:
    assert [each["name"] for each in answered("prompts/list")["prompts"]] == ["task"]
    first, second = answered("prompts/get", name="task")["messages"]
    assert first == {"role": "user", "content": {"type": "text", "text": "Solve it."}}
    assert second["content"] == {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    assert "Unknown prompt" in answered("prompts/get", name="other")["message"]


def test_a_result_says_that_the_episode_is_over_and_never_its_reward() -> None:
    played = Played()
    told = answered("tools/call", played, name=shown_name(LONG), arguments={"x": 1})
    assert told == {
        "content": [{"type": "text", "text": "done"}, {"type": "text", "text": OVER}],
        "isError": False,
    }
    assert played.calls == [(LONG, {"x": 1})]


def test_a_refusal_is_for_the_model_and_an_unknown_tool_is_the_clients_mistake() -> None:
    told = answered("tools/call", name=LONG, arguments={"refuse": True})
    assert told == {"content": [{"type": "text", "text": "Try again."}], "isError": True}
    refused = answered("tools/call", name="other")
    assert refused["code"] == -32602
    assert refused["message"].startswith("Unknown tool 'other'")


@pytest.mark.parametrize("method", ["resources/list", "resources/templates/list", "ping"])
def test_what_an_episode_does_not_have_is_empty(method: str) -> None:
    assert [*answered(method).values()] in ([[]], [])


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"{", -32700),
        (b"[]", -32600),
        (b'{"id": 1, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}', -32602),
        (body("ping", _meta={"io.modelcontextprotocol/protocolVersion": "2026-07-28"}), -32602),
        (body("ping", _meta={**META, "io.modelcontextprotocol/protocolVersion": "2031-01-01"}), -32022),
    ],
)
def test_what_is_no_message_is_refused(sent: bytes, code: int) -> None:
    with pytest.raises(Refused) as refused:
        read(sent)
    assert refused.value.code == code


def test_notifications_and_answers_get_no_answer() -> None:
    for sent in (body("notifications/cancelled", id=None), b'{"jsonrpc": "2.0", "id": 1, "result": {}}'):
        assert asyncio.run(Seat().heard(sent)) == Reply(202)


def test_progress_goes_to_clients_that_ask_for_it() -> None:
    told = Message(1, "tools/call", {"_meta": {"progressToken": "t"}}).progress(3)
    assert json.loads(told or b"")["params"] == {"progressToken": "t", "progress": 3}
    assert Message(1, "tools/call", {}).progress(3) is None
    assert Message(1, "tools/call", {"_meta": {"progressToken": "t" * 1_100_000}}).progress(3) is None


def test_an_error_is_not_cut() -> None:
    answer = Refused(-32602, "x" * 1_100_000).answer()
    assert answer in event(answer)


HEADERS = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "answer"}
CALL = body("tools/call", name="answer", _meta=META)


async def replied(headers: dict[str, str], sent: bytes) -> tuple[int, Any]:
    async with Played().driven() as seat:
        reply = await seat.heard(sent, headers)
        return reply.status, json.loads(reply.body)


@pytest.mark.parametrize(
    ("headers", "sent", "status", "code"),
    [
        (HEADERS, CALL, 200, None),
        ({**HEADERS, "mcp-name": "other"}, CALL, 400, -32020),
        ({**HEADERS, "mcp-method": "ping"}, CALL, 400, -32020),
        ({**HEADERS, "mcp-protocol-version": "2025-11-25"}, CALL, 400, -32020),
        ({}, CALL, 400, -32020),
        (HEADERS, body("tools/call", name="answer"), 400, -32602),
        ({**HEADERS, "mcp-method": "nope"}, body("nope", _meta=META), 404, -32601),
        ({}, body("nope"), 200, -32601),
        ({"mcp-protocol-version": "2026-07-28"}, body("initialize"), 200, None),
        ({"mcp-protocol-version": "2025-06-18"}, body("tools/call", name="nope"), 200, -32602),
        ({}, b"{", 400, -32700),
    ],
)
def test_a_status_says_what_is_wrong(
    headers: dict[str, str], sent: bytes, status: int, code: int | None
) -> None:
    got, value = asyncio.run(replied(headers, sent))
    assert (got, value.get("error", {}).get("code")) == (status, code)


async def streamed(blocks: Blocks, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    monkeypatch.setattr("ors.mcp.AT_ONCE_SECONDS", 0.0)
    played = Played(blocks)
    played.gate.clear()
    async with played.driven() as seat:
        reply = await seat.heard(body("tools/call", name="answer", _meta={"progressToken": 5}))
        assert reply.messages is not None
        messages = [await anext(reply.messages)]
        played.gate.set()
        messages += [each async for each in reply.messages]
    return list(map(event, messages))


def test_a_long_call_is_a_stream_of_progress_that_ends_with_its_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocks: Blocks = [TextBlock("a\u2028b"), ImageBlock(data="aGk=", mimeType="image/png")]
    *before, last = asyncio.run(streamed(blocks, monkeypatch))
    assert b'"progressToken":5' in before[0]
    assert len(last.decode().splitlines()) == 3  # no reader sees a line end inside
    content = json.loads(last.split(b"data: ")[1])["result"]["content"]
    assert content[0]["text"] == "a\u2028b"
    assert content[1]["type"] == "image"


@pytest.mark.parametrize(
    "blocks",
    [
        [
            TextBlock("first"),
            ImageBlock(data="A" * 2_000_000, mimeType="image/png"),
            TextBlock("é" * 900_000),
        ],
        [TextBlock('"' * 30)] * 50_000,
        [TextBlock("first"), TextBlock("a" * 2_000_000)],
        [TextBlock("first"), TextBlock("\x01" * 200_000 + "a" * 2_000_000)],
    ],
)
def test_what_is_too_large_for_an_event_is_cut(blocks: Blocks, monkeypatch: pytest.MonkeyPatch) -> None:
    *_, last = asyncio.run(streamed(blocks, monkeypatch))
    assert len(last) < 1_048_576
    texts = [each["text"] for each in json.loads(last.split(b"data: ")[1])["result"]["content"]]
    assert texts[0] == blocks[0].text  # type: ignore[union-attr]
    assert (texts[-2][:6], texts[-1]) == ("[Cut: ", OVER)
    assert len(last) > 900_000
