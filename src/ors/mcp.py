"""An episode as an MCP server: JSON-RPC messages, and what it answers to them. Reads no socket.

Messages are of both eras: handshake (2024-11-05 to 2025-11-25) and stateless (2026-07-28). Rewards and
metadata are never in an answer: the agent reads every byte.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from ors._json import dumps, loads
from ors._protocol import PING_COMMENT, one_line
from ors._version import __version__
from ors.errors import ORSError
from ors.types import Blocks, ToolSpec, described

HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Revisions that begin with `initialize`."""
STATELESS = "2026-07-28"
"""The revision whose requests stand alone, each with its version and the client's capabilities in `_meta`."""

PARSE_ERROR, INVALID_REQUEST = -32700, -32600
UNKNOWN_METHOD, INVALID_PARAMS, INTERNAL = -32601, -32602, -32603
HEADER_MISMATCH, UNSUPPORTED_VERSION = -32020, -32022

_LONGEST_TOKEN = 1000
"""Characters of a progress token: every notification repeats it."""
META = "io.modelcontextprotocol/"
_VERSION, _CAPABILITIES = f"{META}protocolVersion", f"{META}clientCapabilities"
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The parameter that the header `Mcp-Name` repeats."""


class Refused(Exception):
    """A message that gets an error for its answer."""

    def __init__(
        self, code: int, text: str, id: Any = None, stateless: bool = False, data: object = None
    ) -> None:
        super().__init__(text)
        self.code, self.id, self.stateless, self.data = code, id, stateless, data

    @property
    def status(self) -> int:
        """That of HTTP. After a handshake, only what is no message has one of its own."""
        if not self.stateless and self.code not in (PARSE_ERROR, INVALID_REQUEST):
            return 200
        return {UNKNOWN_METHOD: 404, INTERNAL: 200}.get(self.code, 400)

    def answer(self) -> bytes:
        data = {} if self.data is None else {"data": self.data}
        told = {"code": self.code, "message": str(self), **data}
        return dumps({"jsonrpc": "2.0", "id": self.id, "error": told})


@dataclass(slots=True)
class Message:
    """A request, or a notification, which has no id and gets no answer."""

    id: str | int | float | None
    method: str
    params: dict[str, Any]
    stateless: bool = False

    def result(self, value: dict[str, Any]) -> bytes:
        if self.stateless:
            value["resultType"] = "complete"
        return dumps({"jsonrpc": "2.0", "id": self.id, "result": value})

    def refused(self, code: int, text: str, data: object = None) -> Refused:
        return Refused(code, text, self.id, self.stateless, data)

    def progress(self, count: int) -> bytes | None:
        """The notification that this request is still running; None if its client asked for none."""
        meta = self.params.get("_meta")
        token = meta.get("progressToken") if type(meta) is dict else None
        if type(token) not in (str, int) or len(str(token)) > _LONGEST_TOKEN:
            return None
        params = {"progressToken": token, "progress": count}
        return dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})


def read(body: bytes, headers: Mapping[str, str] | None = None) -> Message:
    """Reads one message. `headers`, with names in lower case, are those of HTTP.

    Raises:
        Refused: it is not valid.
    """
    try:
        return parsed(loads(body), headers)
    except ValueError:
        raise Refused(PARSE_ERROR, "The message is not valid JSON") from None


def parsed(value: Any, headers: Mapping[str, str] | None) -> Message:
    """The message of a JSON value. Raises as `read` does."""
    if type(value) is not dict or value.get("jsonrpc") != "2.0":
        text = "A message is one JSON object with jsonrpc: 2.0; batches are not taken"
        raise Refused(INVALID_REQUEST, text)
    id, method, params = value.get("id"), value.get("method"), value.get("params")
    if method is None and ("result" in value or "error" in value):
        return Message(None, "", {})  # an answer, to a request that nobody sent
    if type(method) is not str or not (id is None or type(id) in (str, int, float)):
        raise Refused(INVALID_REQUEST, "A message has a method, and an id that is a string or a number")
    if type(params) is not dict and params is not None:
        raise Refused(INVALID_PARAMS, "params must be an object", id)
    message = Message(id, method, params or {})
    meta = message.params.get("_meta")
    version = HANDSHAKE[-1] if headers is None else headers.get("mcp-protocol-version", HANDSHAKE[-1])
    stateless = (type(meta) is dict and _VERSION in meta) or version not in HANDSHAKE
    if stateless and method != "initialize":  # which begins a handshake, whatever its headers say
        message.stateless = True
        if id is not None:
            _check_envelope(message, meta, headers)
    return message


def _check_envelope(message: Message, meta: Any, headers: Mapping[str, str] | None) -> None:
    if type(meta) is not dict or type(meta.get(_VERSION)) is not str or _CAPABILITIES not in meta:
        text = f"params._meta must have {_VERSION}, a string, and {_CAPABILITIES}"
        raise message.refused(INVALID_PARAMS, text)
    version, method = meta[_VERSION], message.method
    if headers is not None:
        name = message.params.get(_NAMED[method]) if method in _NAMED else None
        said = headers.get("mcp-protocol-version"), headers.get("mcp-method")
        if said != (version, method) or (name is not None and headers.get("mcp-name") != name):
            text = "The headers MCP-Protocol-Version, Mcp-Method and Mcp-Name must agree with the message"
            raise message.refused(HEADER_MISMATCH, text)
    if version != STATELESS:
        data = {"supported": [STATELESS], "requested": version}
        raise message.refused(UNSUPPORTED_VERSION, "Unsupported protocol version", data)


# ── Answers ──────────────────────────────────────────────────────────────────────────────────────


OVER = "The episode is over. There is nothing more to do."
"""Follows the result of the call that finished the episode."""
LONGEST_NAME = 50
"""Providers take names of 64 characters, with the prefix of the client included, such as `mcp__server__`."""
AT_ONCE_SECONDS = 1.0
"""A call that is done by then is answered as JSON, of any size; otherwise as a stream of events."""
PROGRESS_SECONDS = 5.0
"""How often an open stream gets a sign of life. At this pace, agents wait for calls of minutes."""
EVENT_BYTES = 1_000_000
"""Longest message in an event: the client of mcp 2.3.0 refuses events over 1,048,576 bytes."""
_BLOCK_KEYS = ("type", "text", "data", "mimeType")  # an author's own fields stay here
_TASK = {"name": "task", "description": "The task of this episode."}
_SERVER = {
    "capabilities": {"tools": {}, "prompts": {}},
    "serverInfo": {"name": "ors", "version": __version__},
}

Tools = Callable[[], Awaitable[list[ToolSpec]]]
"""The tools of an episode, with the `@terminal` one."""
Prompt = Callable[[], Awaitable[Blocks]]


async def told(message: Message, tools: Tools, prompt: Prompt) -> bytes:
    """The answer to a request that is no call.

    Raises:
        Refused: it gets an error.
    """
    try:
        value = await _value(message, tools, prompt)
    except ORSError as failure:
        raise message.refused(INTERNAL, str(failure)) from None
    if message.stateless and "messages" not in value:
        value |= {"ttlMs": 3_600_000, "cacheScope": "private"}
    return message.result(value)


async def _value(message: Message, tools: Tools, prompt: Prompt) -> dict[str, Any]:
    match message.method:
        case "initialize":
            version = message.params.get("protocolVersion")
            version = version if version in HANDSHAKE else HANDSHAKE[-1]
            return {"protocolVersion": version, "instructions": described(await prompt()), **_SERVER}
        case "server/discover":
            return {
                "supportedVersions": [STATELESS], "instructions": described(await prompt()), **_SERVER,
            }  # fmt: skip
        case "tools/list":
            return {"tools": [_tool(spec) for spec in await tools()]}
        case "prompts/list":
            return {"prompts": [_TASK]}
        case "prompts/get":
            if message.params.get("name") != _TASK["name"]:
                raise message.refused(INVALID_PARAMS, "Unknown prompt; the only one is 'task'")
            content = [_content(vars(each)) for each in await prompt()]
            return {"messages": [{"role": "user", "content": each} for each in content]}
        case "resources/list":
            return {"resources": []}
        case "resources/templates/list":
            return {"resourceTemplates": []}
        case "ping":
            return {}
        case _:
            raise message.refused(UNKNOWN_METHOD, f"Unknown method {message.method!r}")


def asked(message: Message) -> tuple[str, dict[str, Any]]:
    """The tool and the input of a `tools/call`. Raises Refused if they are not valid."""
    name, given = message.params.get("name"), message.params.get("arguments")
    if type(name) is not str or not (given is None or type(given) is dict):
        raise message.refused(INVALID_PARAMS, "tools/call needs a name, a string, and arguments, an object")
    return name, given or {}


async def tool_named(message: Message, tools: Tools) -> str:
    """The episode's name of the tool that a client calls. Raises Refused if there is none."""
    name = message.params["name"]
    for spec in await tools():
        if name in (spec.name, shown_name(spec.name)):
            return spec.name
    raise message.refused(INVALID_PARAMS, f"Unknown tool {name!r}; the tools are listed by tools/list")


def called(message: Message, blocks: Iterable[Mapping[str, Any]], finished: bool) -> bytes:
    """The answer to a `tools/call` that has an output."""
    content = [_content(block) for block in blocks]
    if finished:
        content.append(_text(OVER))
    return message.result({"content": content, "isError": False})


def failed(message: Message, text: str) -> bytes:
    """The answer to a `tools/call` that was refused, or failed."""
    return message.result({"content": [_text(text)], "isError": True})


def shown_name(name: str) -> str:
    """The name under which clients see a tool: its own, unless they or their models would refuse that."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    if plain == name and len(name) <= LONGEST_NAME:
        return name
    mark = blake2b(name.encode(errors="surrogatepass"), digest_size=4).hexdigest()
    return f"{plain[: LONGEST_NAME - len(mark) - 1]}_{mark}"


def _tool(spec: ToolSpec) -> dict[str, Any]:
    shown = shown_name(spec.name)
    title = {} if shown == spec.name else {"title": spec.name}
    schema = {"properties": {}, **(spec.input_schema or {}), "type": "object"}
    return {"name": shown, **title, "description": spec.description, "inputSchema": schema}


def _content(block: Mapping[str, Any]) -> dict[str, str]:
    return {key: block[key] for key in _BLOCK_KEYS if key in block}


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def event(message: bytes | None) -> bytes:
    """A message as an event; a comment if there is none. An answer that is too long for one is cut."""
    if message is None:
        return PING_COMMENT
    if len(message) > EVENT_BYTES:
        message = _cut(message)
    return b"event: message\ndata: %b\n\n" % one_line(message)


def _cut(answer: bytes) -> bytes:
    """The answer to a call without what is too much for an event, and with a note that says so."""
    value, kept = loads(answer), list[dict[str, str]]()
    if "result" not in value:
        return answer  # an error
    content, left = value["result"]["content"], EVENT_BYTES - 10_000  # for the rest of the message
    over = content[-1] == _text(OVER)
    for block in content[: len(content) - over]:
        if left < 100:
            break
        if len(dumps(block)) > left:
            block = _text(block.get("text", "[image left out]"))
        while (size := len(dumps(block))) > left:  # again if what was cut off took less than the rest
            block = _text(block["text"][: len(block["text"]) * left // size])
        kept.append(block)
        left -= len(dumps(block)) + 1
    kept.append(_text(f"[Cut: only 1 MB of {len(answer)} bytes can be sent if a call takes over a second]"))
    value["result"]["content"] = kept + content[-1:] * over
    return dumps(value)
