"""JSON-RPC messages of MCP, in both eras: handshake (2024-11-05 to 2025-11-25) and stateless (2026-07-28)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ors._json import dumps, loads

HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Revisions that begin with `initialize`."""
STATELESS = "2026-07-28"
"""The revision whose requests stand alone, each with its version and the client's capabilities in `_meta`."""

PARSE_ERROR, INVALID_REQUEST, UNKNOWN_METHOD, INVALID_PARAMS, INTERNAL = (
    -32700,
    -32600,
    -32601,
    -32602,
    -32603,
)
HEADER_MISMATCH, UNSUPPORTED_VERSION = -32020, -32022

_VERSION, _CAPABILITIES = (
    f"io.modelcontextprotocol/{key}" for key in ("protocolVersion", "clientCapabilities")
)
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The parameter that the header `Mcp-Name` repeats."""


class Refused(Exception):
    """A message that gets an error for its answer."""

    def __init__(
        self, code: int, text: str, id: Any = None, stateless: bool = False, data: object = None
    ) -> None:
        super().__init__(text)
        self.code, self.id, self.stateless, self.data = code, id, stateless, data


@dataclass(slots=True)
class Message:
    """A request, or a notification, which has no id and gets no answer."""

    id: str | int | float | None
    method: str
    params: dict[str, Any]
    stateless: bool

    def result(self, value: dict[str, Any]) -> bytes:
        """The answer to this request."""
        if self.stateless:
            value["resultType"] = "complete"
        return dumps({"jsonrpc": "2.0", "id": self.id, "result": value})

    def refused(self, code: int, text: str, data: object = None) -> Refused:
        """The error for this request."""
        return Refused(code, text, self.id, self.stateless, data)


def read(body: bytes | str, headers: Mapping[str, str] | None = None) -> Message:
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
        raise Refused(
            INVALID_REQUEST, "A message is one JSON object with jsonrpc: 2.0; batches are not taken"
        )
    id, method, params = value.get("id"), value.get("method"), value.get("params")
    if method is None and ("result" in value or "error" in value):
        return Message(None, "", {}, False)  # an answer, to a request that nobody sent
    if type(method) is not str or not (id is None or type(id) in (str, int, float)):
        raise Refused(INVALID_REQUEST, "A message has a method, and an id that is a string or a number")
    if type(params) is not dict and params is not None:
        raise Refused(INVALID_PARAMS, "params must be an object", id)
    message = Message(id, method, params or {}, False)
    meta = message.params.get("_meta")
    version = HANDSHAKE[-1] if headers is None else headers.get("mcp-protocol-version", HANDSHAKE[-1])
    if (type(meta) is dict and _VERSION in meta) or version not in HANDSHAKE:
        message.stateless = True
        if id is not None:
            _check_envelope(message, meta, headers)
    return message


def _check_envelope(message: Message, meta: Any, headers: Mapping[str, str] | None) -> None:
    if type(meta) is not dict or type(meta.get(_VERSION)) is not str or _CAPABILITIES not in meta:
        raise message.refused(
            INVALID_PARAMS, f"params._meta must have {_VERSION}, a string, and {_CAPABILITIES}"
        )
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


def error(refused: Refused) -> bytes:
    """The answer to a message that was refused."""
    data = {} if refused.data is None else {"data": refused.data}
    told = {"code": refused.code, "message": str(refused), **data}
    return dumps({"jsonrpc": "2.0", "id": refused.id, "error": told})


def progress(message: Message, count: int) -> bytes | None:
    """The notification that a request is still running; None if its client did not ask for any."""
    meta = message.params.get("_meta")
    token = meta.get("progressToken") if type(meta) is dict else None
    if type(token) not in (str, int):
        return None
    params = {"progressToken": token, "progress": count}
    return dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
