"""One HTTP request, the fields that this server reads, and what it takes to parse a large body."""

import base64
import binascii
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import parse_qs

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from ors import _protocol
from ors._json import loads, problems
from ors.errors import BadRequest, ORSError, ResponseError, TooLarge
from ors.limits import Limits
from ors.server.http.answers import Headers
from ors.types import ToolCall

Model = TypeVar("Model", bound=BaseModel)

IDEMPOTENCY_KEY = _protocol.IDEMPOTENCY_KEY.lower().encode()
SESSION_ID = _protocol.SESSION_ID.lower().encode()
TRACE = _protocol.TRACE.encode()
MAX_DIGITS = 19
"""Digits of a number in a query."""
_API_KEY = _protocol.API_KEY.lower().encode()
_SECRETS = _protocol.SECRETS.lower().encode()
_IDLE_SECONDS = _protocol.IDLE_SECONDS.lower().encode()
_EVENT_STREAM = _protocol.EVENT_STREAM.encode()

_ONCE = ("Host", _protocol.SESSION_ID, _protocol.API_KEY, _protocol.IDEMPOTENCY_KEY, _protocol.SECRETS)
SINGLE_HEADERS = {name.lower().encode(): name for name in _ONCE}
"""Headers that a request has once at most, with their usual spelling."""

KEYLESS_BODY_BYTES = 64 * 1024
"""Longest body of a request without a key, on a server with keys: no handler reads it."""
MCP_BODY_BYTES = 2**20
"""The same for MCP messages, where the key is in the path."""
MAX_TARGET_BYTES = 16 * 1024
"""Path and query of a request together."""
MAX_HEADER_BYTES = 64 * 1024
"""All headers of a request together."""


class Request:
    """A request with its complete body. What cannot be read of it is a BadRequest."""

    __slots__ = ("body", "headers", "key", "method", "more", "parsed", "path", "query", "waiting")

    def __init__(
        self, method: str, path: str, query: bytes, headers: dict[bytes, bytes], body: bytes
    ) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.body = body
        self.parsed: tuple[object, ORSError | None] | None = None
        """The value of a large body, or what is wrong with it; None for a small one, not parsed yet."""
        self.key = ""
        """The name of its API key, once it is checked."""
        self.more: Headers | None = None
        """Additional headers of its answer."""
        self.waiting = False
        """Whether it is cancelled when its client leaves: it is queued, or a fork."""

    def like(self, query: bytes) -> "Request":
        made = Request(self.method, self.path, query, self.headers, self.body)
        made.key = self.key
        return made

    def asked(self, name: str) -> str:
        """Returns a value of the query, or an empty string."""
        return parse_qs(self.query.decode("latin-1")).get(name, [""])[0]

    def number(self, name: str, otherwise: int) -> int:
        text = self.asked(name) or str(otherwise)
        if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
            raise BadRequest(f"{name}: expected a number from 0 to {'9' * MAX_DIGITS}")
        return int(text)

    def session_id(self) -> str:
        try:
            sid = self.headers[SESSION_ID].decode().strip()
        except (KeyError, UnicodeDecodeError):
            sid = self.maybe_session_id()
        if not sid:
            raise BadRequest(f"The header {_protocol.SESSION_ID} is required")
        return sid

    def maybe_session_id(self) -> str:
        """The session that the request names, or an empty string."""
        sid = self.headers.get(SESSION_ID, b"")
        try:
            return sid.decode().strip()
        except UnicodeDecodeError:
            return sid.decode("latin-1").strip()  # the older encoding of headers

    def new_session_id(self) -> str:
        sid = self.session_id()
        if not _protocol.valid_session_id(sid):
            raise _wrong_id(_protocol.SESSION_ID)
        return sid

    def idempotency_key(self) -> str | None:
        value = self.headers.get(IDEMPOTENCY_KEY)
        if value is None:
            return None
        key = value.decode("latin-1").strip()
        if not _protocol.valid_session_id(key):
            raise _wrong_id(_protocol.IDEMPOTENCY_KEY)
        return key

    def limits(self, limits: Limits) -> Limits:
        """The limits of the new session: it may expire sooner than others, if its client asks for that."""
        value = self.headers.get(_IDLE_SECONDS)
        if value is None:
            return limits
        if not value.isdigit() or len(value) > MAX_DIGITS or not int(value):
            raise BadRequest(
                f"The header {_protocol.IDLE_SECONDS} must be a whole number of seconds, at least 1"
            )
        return _shorter(limits, int(value))

    def trace(self) -> str:
        """The span that the request belongs to, or an empty string."""
        value = self.headers.get(TRACE)
        return "" if value is None else value.decode("latin-1")

    def wants_events(self) -> bool:
        return _EVENT_STREAM in self.headers.get(b"accept", b"").lower()

    def wants_page(self) -> bool:
        """Whether the client is a browser that opens a page."""
        return b"text/html" in self.headers.get(b"accept", b"").lower()

    def api_key(self) -> bytes:
        secret = self.headers.get(_API_KEY)
        if secret is None:
            scheme, _, secret = self.headers.get(b"authorization", b"").partition(b" ")
            secret = secret.strip() if scheme.lower() == b"bearer" else b""
        return secret

    def secrets(self) -> dict[str, str]:
        """The secrets of the `X-Secrets` header: base64 of JSON `{"name": {"value": "…"}}`."""
        value = self.headers.get(_SECRETS)
        if value is None:
            return {}
        try:
            given = loads(base64.b64decode(value, validate=True))
            secrets = {name: entry["value"] for name, entry in given.items()}
        except (binascii.Error, ValueError, AttributeError, TypeError, KeyError):
            secrets = None
        if secrets is None or not all(isinstance(secret, str) for secret in secrets.values()):
            raise BadRequest(
                f'The header {_protocol.SECRETS} must be base64 of JSON like {{"name": {{"value": "…"}}}}'
            )
        return secrets

    def json_object(self) -> dict[str, Any]:
        """The body as a JSON object, whatever its content type says."""
        if not self.body:
            raise BadRequest("The request body is empty; expected a JSON object")
        value = self.value()
        if not isinstance(value, dict):
            raise BadRequest("The request body must be a JSON object")
        return value

    def value(self) -> Any:
        """The JSON value of the body. Raises as `json_object` does."""
        value, error = self.parsed or parsed(self.body)
        if error is not None:
            raise error
        return value

    def model(self, model: type[Model]) -> Model:
        return _fitted(model, self.json_object())

    def tool_call(self) -> tuple[str, dict[str, Any], str | None]:
        """The body of a call: the tool's name, its input, and the task id to rejoin."""
        try:
            value = loads(self.body) if self.parsed is None else self.value()
            name, given, task_id = value["name"], value["input"], value.get("task_id")
        except (ValueError, TypeError, LookupError, AttributeError):
            value = self.json_object()
            name = given = task_id = None
        # By hand on the hot path; for errors, the model makes the text.
        if type(name) is not str or type(given) is not dict or not (task_id is None or type(task_id) is str):
            call = _fitted(ToolCall, value)
            return call.name, dict(call.input), call.task_id
        return name, given, task_id


@lru_cache(16)
def _shorter(limits: Limits, idle_seconds: int) -> Limits:
    return replace(limits, idle_seconds=min(limits.idle_seconds, idle_seconds))


def too_large(limit: int) -> TooLarge:
    return TooLarge(f"The request body is over the limit of {limit} bytes", reason="limit")


def too_long() -> ResponseError:
    text = f"The path and query of the request are over the limit of {MAX_TARGET_BYTES} bytes"
    return ResponseError(text, status=414, reason="limit")


def too_many_headers() -> ResponseError:
    text = f"The headers of the request are over the limit of {MAX_HEADER_BYTES} bytes"
    return ResponseError(text, status=431, reason="limit")


def doubled(name: bytes) -> BadRequest:
    """The error for a single header that came twice: a proxy in between might have read the other one."""
    return BadRequest(f"The request has two {SINGLE_HEADERS[name]} headers; send one")


def _wrong_id(header: str) -> BadRequest:
    return BadRequest(f"The header {header} must be 1 to {_protocol.MAX_ID_CHARS} printable characters")


def _fitted(model: type[Model], value: dict[str, Any]) -> Model:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise BadRequest(problems(error)) from None


# ── Large bodies ─────────────────────────────────────────────────────────────────────────────────
#
# How many values one has is told before it is parsed: a byte of it may become eighty in memory.

SMALL_BODY = 64 * 1024
"""A body up to this is parsed without a look at it."""
MOST_VALUES = 2**20
HEAVY = 8
"""Values that a list, an object or a key counts as: each takes that much more time and memory."""
VALUE_BYTES = 64
"""Memory of a value once it is parsed, roughly."""
LIGHT_VALUES = 2**15
"""A body of so many values is parsed on the event loop, in a few milliseconds."""
LIGHT_BYTES = 2**20
"""A longer body is not even looked at there."""

_BEGINNING, _SLICE = 4 * 2**20, 64 * 1024
_REST = bytes(set(range(256)) - set(b'",:[{'))


def parsed(body: bytes, count: int = 0) -> tuple[object, ORSError | None]:
    """The JSON value of a body, or what is wrong with it; `count` is the number of its values, if many."""
    if count > MOST_VALUES:
        return None, _too_many(body)
    try:
        return loads(body), None
    except ValueError:
        return None, _no_json()


def _too_many(body: bytes) -> ORSError:
    """The error for too many values; if the first ones are nested too deeply, the error for that."""
    try:
        from_json(body[:SMALL_BODY], allow_partial=True)
    except ValueError:
        return _no_json()
    most = f"{MOST_VALUES:,} values; a list, an object or a key counts as {HEAVY}"
    return TooLarge(f"The request body has over {most}", reason="limit")


def _no_json() -> BadRequest:
    return BadRequest("The request body is not valid JSON, or nested too deeply")


def is_light(body: bytes) -> bool:
    """Whether a body is short and has few values, even if those in its strings count. Takes a millisecond."""
    return len(body) <= LIGHT_BYTES and _counted(body, 0, len(body)) <= LIGHT_VALUES


def values(body: bytes) -> int:
    """The number of values of a JSON text, or a greater one up to `MOST_VALUES`.

    If there are too many in its beginning, the rest is not looked at.
    """
    found = _values(body[:_BEGINNING])
    return found if found > MOST_VALUES or len(body) <= _BEGINNING else _values(body)


def _values(body: bytes) -> int:
    found = _counted(body, 0, len(body))
    if found <= MOST_VALUES or b'"' not in body:
        return found
    # Some of it is inside of strings. In JSON, a backslash is too.
    kept = body.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _REST)
    found, inside = 0, False
    for at in range(0, len(kept), _SLICE):
        parts = kept[at : at + _SLICE].split(b'"')
        outside = b"".join(parts[inside::2])
        found += _counted(outside, 0, len(outside))
        if found > MOST_VALUES:
            break
        inside ^= len(parts) % 2 == 0
    return found


def _counted(text: bytes, start: int, end: int) -> int:
    heavy = text.count(b"[", start, end) + text.count(b"{", start, end) + text.count(b":", start, end)
    return HEAVY * heavy + text.count(b",", start, end)
