"""JSON-RPC messages of MCP, in both eras: handshake (2024-11-05 to 2025-11-25) and stateless (2026-07-28)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ors._json import dumps, loads

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
        """The answer to the message."""
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
        """The answer to this request."""
        if self.stateless:
            value["resultType"] = "complete"
        return dumps({"jsonrpc": "2.0", "id": self.id, "result": value})

    def refused(self, code: int, text: str, data: object = None) -> Refused:
        """The error for this request."""
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
    if (type(meta) is dict and _VERSION in meta) or version not in HANDSHAKE:
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
