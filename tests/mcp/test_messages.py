"""The messages of MCP: what is read, what is refused, and what an episode answers."""

import asyncio
import json
from typing import Any

import pytest

from ors.errors import ToolCallError
from ors.mcp import Dialogue, HTTPDialogue, Message, Refused, progress, read
from ors.mcp.answers import LONGEST_NAME, OVER, shown_name
from ors.types import Blocks, ImageBlock, JSONObject, TextBlock, ToolOutput, ToolSpec

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
LONG = "tool." + "x" * 80


class Scripted:
    """An episode whose calls wait for `gate`."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.calls: list[tuple[str, JSONObject]] = []
        self.output = ToolOutput("done", metadata={"secret": 1}, reward=0.625, finished=True)

    async def list_tools(self, *, terminal: bool = False) -> list[ToolSpec]:
        last = [ToolSpec(name="answer", description="The end.")] if terminal else []
        schema: JSONObject = {"properties": {"x": {"$ref": "#/$defs/x"}}, "$defs": {"x": {}}}
        return [ToolSpec(name=LONG, description="Long.", input_schema=schema), *last]

    async def get_prompt(self) -> Blocks:
        return [TextBlock("Solve it."), ImageBlock(data="aGk=", mimeType="image/png")]

    async def call_tool(self, tool_name: str, input: JSONObject) -> ToolOutput:
        self.calls.append((tool_name, input))
        await self.gate.wait()
        if input.get("refuse"):
            raise ToolCallError("Try again.", reason="not_found")
        return self.output


def body(method: str, id: Any = 7, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode()


def answered(method: str, episode: Scripted | None = None, **params: Any) -> dict[str, Any]:
    told = asyncio.run(Dialogue(episode or Scripted()).answer(read(body(method, **params))))
    value: dict[str, Any] = json.loads(told or b"")
    assert value["id"] == 7
    return dict(value["result"])


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
    with pytest.raises(Refused, match="Unknown prompt"):
        answered("prompts/get", name="other")


def test_a_result_says_that_the_episode_is_over_and_never_its_reward() -> None:
    episode = Scripted()
    told = answered("tools/call", episode, name=shown_name(LONG), arguments={"x": 1})
    assert told == {
        "content": [{"type": "text", "text": "done"}, {"type": "text", "text": OVER}],
        "isError": False,
    }
    assert episode.calls == [(LONG, {"x": 1})]


def test_a_refusal_is_for_the_model_and_an_unknown_tool_is_the_clients_mistake() -> None:
    told = answered("tools/call", name=LONG, arguments={"refuse": True})
    assert told == {"content": [{"type": "text", "text": "Try again."}], "isError": True}
    with pytest.raises(Refused, match="Unknown tool 'other'") as refused:
        answered("tools/call", name="other")
    assert refused.value.code == -32602


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
        assert asyncio.run(Dialogue(Scripted()).answer(read(sent))) is None


def test_progress_goes_to_clients_that_ask_for_it() -> None:
    told = progress(Message(1, "tools/call", {"_meta": {"progressToken": "t"}}, False), 3)
    assert json.loads(told or b"")["params"] == {"progressToken": "t", "progress": 3}
    assert progress(Message(1, "tools/call", {}, False), 3) is None


HEADERS = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "answer"}
CALL = body("tools/call", name="answer", _meta=META)


async def replied(headers: dict[str, str], sent: bytes, method: str = "POST") -> tuple[int, Any]:
    reply = await HTTPDialogue(Scripted()).reply(method, headers, sent)
    assert isinstance(reply.body, bytes)
    return reply.status, json.loads(reply.body) if reply.body else reply.headers


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
        ({"mcp-protocol-version": "2025-06-18"}, body("tools/call", name="nope"), 200, -32602),
        ({}, b"{", 400, -32700),
    ],
)
def test_a_status_says_what_is_wrong(
    headers: dict[str, str], sent: bytes, status: int, code: int | None
) -> None:
    got, value = asyncio.run(replied(headers, sent))
    assert (got, value.get("error", {}).get("code")) == (status, code)


def test_only_posts_are_taken_and_notifications_are_accepted() -> None:
    for method in ("GET", "DELETE", "PUT"):
        assert asyncio.run(replied({}, b"", method)) == (405, {"Allow": "POST"})
    assert asyncio.run(replied({}, body("notifications/initialized", id=None))) == (202, {})


async def streamed(output: ToolOutput, seconds: float, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    monkeypatch.setattr("ors.mcp.http.AT_ONCE_SECONDS", seconds)
    episode = Scripted()
    episode.output = output
    episode.gate.clear()
    dialogue = HTTPDialogue(episode)
    sent = body("tools/call", name="answer", _meta={"progressToken": 5})
    reply = await dialogue.reply("POST", {"accept": "application/json, text/event-stream"}, sent)
    assert reply.headers["Content-Type"] == "text/event-stream"
    assert not isinstance(reply.body, bytes)
    events = [await anext(reply.body)]
    episode.gate.set()
    events += [event async for event in reply.body]
    await dialogue.close()
    return events


def test_a_long_call_is_a_stream_of_progress_that_ends_with_its_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output = ToolOutput([TextBlock("a\u2028b"), ImageBlock(data="aGk=", mimeType="image/png")])
    *before, last = asyncio.run(streamed(output, 0.0, monkeypatch))
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
    ],
)
def test_what_is_too_large_for_an_event_is_cut(blocks: Blocks, monkeypatch: pytest.MonkeyPatch) -> None:
    *_, last = asyncio.run(streamed(ToolOutput(blocks, finished=True), 0.0, monkeypatch))
    assert len(last) < 1_048_576
    texts = [each["text"] for each in json.loads(last.split(b"data: ")[1])["result"]["content"]]
    assert texts[0] == blocks[0].text  # type: ignore[union-attr]
    assert (texts[-2][:6], texts[-1]) == ("[Cut: ", OVER)
    assert len(last) > 900_000
