"""The frames of a link: how many requests and answers share one connection.

A frame is the length of its payload (4 bytes), its kind (1), the number of the request (4), and the payload.
"""

import re
import struct
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from ors._json import dumps, loads
from ors._protocol.endpoints import MAX_SLOT
from ors.errors import BadRequest

PEERS, CLIENTS = b"ors-link", b"ors-mux/1"
"""The names in the `Upgrade` header: links of other servers, and those of clients."""
PATHS = {PEERS: "/-/link", CLIENTS: "/-/mux"}

# From the end that asks ...
REQUEST, LEAVE, CREDIT, FIND, CALL = range(1, 6)
# ... and from the end that answers.
HELLO, LOAD, WHOLE, HEAD, PART, END, FOUND, BYE, REFUSED, RESULT = range(16, 26)

PIECE_BYTES = 64 * 1024
"""Longer bodies are sent in pieces, so that none delays the others for long."""
WINDOW_BYTES = 256 * 1024
"""How much of one answer may be on the way before its client has read it."""

ACCEPTS = b"1"
"""The load that a client is told: new sessions are accepted, under ids of its own making."""
LONGEST_OF_CLIENT = 64 * 1024
"""Greatest size of a client's frame: longer requests go by HTTP, so that none delays the others for long."""
LONGEST_TARGET = 0xFFFF
"""Greatest size of a path or a query in a frame."""

_HEADER = struct.Struct(">IBI")
_LENGTHS = struct.Struct(">BHHI")
_CALL = struct.Struct(">HHH")
_CALL_HEADER = struct.Struct(">IBIHHH")
_STATUS = struct.Struct(">HH")
_COUNT = struct.Struct(">I")
_BREAK = re.compile(rb"[\r\n]")


def frame(kind: int, number: int, payload: bytes = b"") -> bytes:
    return header(kind, number, len(payload)) + payload


def header(kind: int, number: int, size: int) -> bytes:
    """The beginning of a frame whose payload, of `size` bytes, is written after it."""
    return _HEADER.pack(size, kind, number)


Asked = tuple[str, str, bytes, dict[bytes, bytes], bytes]
"""Method, path, query, headers and body of a request."""


def request_frame(number: int, request: Asked) -> bytes:
    """Encodes a request. Raises BadRequest: the path, the query or a header does not fit into a frame."""
    method_text, path_text, query, headers, body = request
    try:
        method, path = method_text.encode(), path_text.encode()
    except UnicodeEncodeError:
        raise BadRequest("The request's path is not UTF-8") from None
    if len(path) > LONGEST_TARGET or len(query) > LONGEST_TARGET:
        raise BadRequest(f"The request's path or query is over {LONGEST_TARGET} bytes")
    lines = b"\n".join(chain.from_iterable(headers.items()))
    if lines.count(b"\n") != max(0, 2 * len(headers) - 1):
        raise BadRequest("A header contains a line break")
    lengths = _LENGTHS.pack(len(method), len(path), len(query), len(lines))
    size = _LENGTHS.size + len(method) + len(path) + len(query) + len(lines) + len(body)
    return b"".join((_HEADER.pack(size, REQUEST, number), lengths, method, path, query, lines, body))


def read_request(payload: bytes) -> Asked:
    """Decodes a request. Raises BadRequest, ValueError, struct.error."""
    method_length, path_length, query_length, lines_length = _LENGTHS.unpack_from(payload)
    path_at = _LENGTHS.size + method_length
    query_at = path_at + path_length
    lines_at = query_at + query_length
    body_at = lines_at + lines_length
    if body_at > len(payload):
        raise ValueError("a request is shorter than it says")
    method, path = payload[_LENGTHS.size : path_at], payload[path_at:query_at]
    query, lines = payload[query_at:lines_at], payload[lines_at:body_at]
    parts = lines.split(b"\n") if lines else []
    headers = dict(zip(parts[::2], parts[1::2], strict=True))
    if not method.replace(b"-", b"").isalpha():
        raise BadRequest("The request's method is invalid")
    if not path.startswith(b"/"):
        raise BadRequest("The request's path does not begin with a slash")
    if _BREAK.search(query):
        raise BadRequest("The request's query contains a line break")
    try:
        return method.decode(), path.decode(), query, headers, payload[body_at:]
    except UnicodeDecodeError:
        raise BadRequest("The request's path is not UTF-8") from None


def call_frame(number: int, path: bytes, sid: bytes, key: bytes, body: bytes) -> bytes:
    """Encodes a tool call: a request that needs no other headers than its session and its key."""
    size = _CALL.size + len(path) + len(sid) + len(key) + len(body)
    header = _CALL_HEADER.pack(size, CALL, number, len(path), len(sid), len(key))
    return b"".join((header, path, sid, key, body))


def read_call(payload: bytes) -> tuple[str, bytes, bytes, bytes]:
    """Decodes the path, the session id, the idempotency key and the body of a tool call.

    Raises:
        ValueError, struct.error: the frame is malformed.
    """
    path_length, sid_length, key_length = _CALL.unpack_from(payload)
    sid_at = _CALL.size + path_length
    key_at = sid_at + sid_length
    body_at = key_at + key_length
    if body_at > len(payload):
        raise ValueError("a call is shorter than it says")
    path = payload[_CALL.size : sid_at].decode()
    return path, payload[sid_at:key_at], payload[key_at:body_at], payload[body_at:]


def result_frame(number: int, task_id: bytes, result: bytes) -> bytes:
    """Encodes the task id and the result of a tool call, which is JSON, with a space between them.

    A long result begins in `PART` frames, the first of which has the task id.
    """
    header = _HEADER.pack(len(task_id) + 1 + len(result), RESULT, number)
    return b"%b%b %b" % (header, task_id, result)


def answer_frame(kind: int, number: int, status: int, headers: bytes, body: bytes = b"") -> bytes:
    size = _STATUS.size + len(headers) + len(body)
    return b"".join((_HEADER.pack(size, kind, number), _STATUS.pack(status, len(headers)), headers, body))


def read_answer(payload: bytes) -> tuple[int, bytes, bytes]:
    """Decodes status, headers and body. Raises ValueError, struct.error: the frame is malformed."""
    status, length = _STATUS.unpack_from(payload)
    end = _STATUS.size + length
    headers = payload[_STATUS.size : end]
    # Headers that end early would let the rest pass as an answer of its own.
    if not 200 <= status < 600 or len(headers) != length or b"\r\n\r\n" in headers:
        raise ValueError("an answer's status or headers are invalid")
    return status, headers, payload[end:]


class Hello(NamedTuple):
    """How a server introduces itself on a new link."""

    slot: int
    incarnation: int
    environments: list[str]
    body_bytes: int
    """The longest body that it accepts."""

    def frame(self) -> bytes:
        return frame(HELLO, 0, dumps(self._asdict()))


def read_hello(payload: bytes) -> Hello:
    """Decodes how a server introduces itself. Raises ValueError."""
    match loads(payload):
        case {
            "slot": int(slot),
            "incarnation": int(incarnation),
            "environments": [*names],
            "body_bytes": int(body_bytes),
        }:
            known = all(isinstance(name, str) for name in names)
            if known and 0 <= slot <= MAX_SLOT and 0 <= incarnation < 2**32 and body_bytes >= 0:
                return Hello(slot, incarnation, names, body_bytes)
    raise ValueError("a server introduces itself wrongly")


def read_load(payload: bytes) -> tuple[int, bool]:
    """Decodes how many sessions a server has, and whether it takes more. Raises ValueError."""
    match loads(payload):
        case [int(sessions), bool(accepts)] if sessions >= 0:
            return sessions, accepts
    raise ValueError("a load is malformed")


def read_found(payload: bytes) -> int:
    """Decodes where a session is: 2 if it lives there, 1 if it has ended there, else 0. Raises ValueError."""
    if payload not in (b"0", b"1", b"2"):
        raise ValueError("an answer to FIND is malformed")
    return int(payload)


def credit_frame(number: int, count: int) -> bytes:
    """Encodes that the client has read this many bytes of an answer."""
    return frame(CREDIT, number, _COUNT.pack(count))


def read_credit(payload: bytes) -> int:
    """Decodes how many bytes of an answer the client has read. Raises struct.error."""
    return int(_COUNT.unpack(payload)[0])


class Frames:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._need = 0

    @property
    def is_partial(self) -> bool:
        """Whether a frame has begun to arrive."""
        return bool(self._rest)

    def feed(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Yields the frames that are complete now: kind, number, payload. Raises ValueError."""
        at, size = 0, len(data)
        while self._rest:  # only a frame that arrives in parts is put together
            more = data[at : at + self._need - len(self._rest)]
            self._rest += more
            at += len(more)
            if len(self._rest) < self._need:
                return
            length, kind, number = self._header(self._rest, 0)
            self._need = _HEADER.size + length
            if len(self._rest) == self._need:
                payload = bytes(memoryview(self._rest)[_HEADER.size :])
                self._rest.clear()
                yield kind, number, payload
        while size - at >= _HEADER.size:
            length, kind, number = self._header(data, at)
            end = at + _HEADER.size + length
            if end > size:
                self._need = end - at
                break
            yield kind, number, data[at + _HEADER.size : end]
            at = end
        else:
            self._need = _HEADER.size
        self._rest += data[at:]

    def _header(self, data: bytes | bytearray, at: int) -> tuple[int, int, int]:
        length, kind, number = _HEADER.unpack_from(data, at)
        if length > self._limit:
            raise ValueError(f"a frame of {length} bytes")
        return length, kind, number
