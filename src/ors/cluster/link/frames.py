"""The frames that servers exchange over one connection, for many requests and answers at a time.

A frame is its payload's length (4 bytes), its kind (1), the number of the exchange (4), and the payload.
"""

import re
import struct
from collections.abc import Iterator

from ors.errors import BadRequest
from ors.server.http.requests import Request

PROTOCOL = b"ors-link"
"""The name of this protocol in the `Upgrade` header."""
PATH = "/-/link"

# From the server that forwards ...
REQUEST, LEAVE, CREDIT, FIND = range(1, 5)
# ... and from the server that answers.
HELLO, LOAD, WHOLE, HEAD, PART, END, FOUND, BYE, REFUSED = range(16, 25)

PIECE_BYTES = 64 * 1024
"""Longer bodies go in pieces, so that none holds up the others for long."""
WINDOW_BYTES = 256 * 1024
"""Of one answer, so much may be on the way that its client has not read."""

LONGEST_TARGET = 0xFFFF
"""Bytes of a path, or of a query, in a frame."""

_HEADER = struct.Struct(">IBI")
_LENGTHS = struct.Struct(">BHHI")
_STATUS = struct.Struct(">HH")
_BREAK = re.compile(rb"[\r\n]")


def frame(kind: int, number: int, payload: bytes = b"") -> bytes:
    """A frame."""
    return _HEADER.pack(len(payload), kind, number) + payload


def request_frame(number: int, request: Request) -> bytes:
    """A request.

    Raises:
        BadRequest: the path, the query or a header cannot be passed on.
    """
    method, path = request.method.encode(), _encoded(request.path)
    if len(path) > LONGEST_TARGET or len(request.query) > LONGEST_TARGET:
        raise BadRequest(f"The request's path or query is over {LONGEST_TARGET} bytes")
    lines = b"\n".join([part for pair in request.headers.items() for part in pair])
    if lines.count(b"\n") != max(0, 2 * len(request.headers) - 1):
        raise BadRequest("A header contains a line break")
    lengths = _LENGTHS.pack(len(method), len(path), len(request.query), len(lines))
    size = _LENGTHS.size + len(method) + len(path) + len(request.query) + len(lines) + len(request.body)
    header = _HEADER.pack(size, REQUEST, number)
    return b"".join((header, lengths, method, path, request.query, lines, request.body))


def _encoded(path: str) -> bytes:
    try:
        return path.encode()
    except UnicodeEncodeError:
        raise BadRequest("The request's path is not UTF-8") from None


def read_request(payload: bytes) -> Request:
    """The request of a frame.

    Raises:
        BadRequest: the frame is one, but no client's request can be like that.
        ValueError, struct.error: it is no frame of a request.
    """
    method, path, query, lines = _LENGTHS.unpack_from(payload)
    at = _LENGTHS.size
    ends = [at := at + length for length in (method, path, query, lines)]
    if ends[3] > len(payload):
        raise ValueError("a frame is shorter than it says")
    parts = payload[ends[2] : ends[3]].split(b"\n") if lines else []
    headers = dict(zip(parts[::2], parts[1::2], strict=True))
    target = payload[ends[0] : ends[1]], payload[ends[1] : ends[2]]
    return Request(_method(payload[_LENGTHS.size : ends[0]]), *_target(*target), headers, payload[ends[3] :])


def _method(method: bytes) -> str:
    if not method.replace(b"-", b"").isalpha():
        raise BadRequest("The request's method is none")
    return method.decode()


def _target(path: bytes, query: bytes) -> tuple[str, bytes]:
    if not path.startswith(b"/"):
        raise BadRequest("The request's path does not begin with a slash")
    if _BREAK.search(query):
        raise BadRequest("The request's query contains a line break")
    try:
        return path.decode(), query
    except UnicodeDecodeError:
        raise BadRequest("The request's path is not UTF-8") from None


def answer_frame(kind: int, number: int, status: int, headers: bytes, body: bytes = b"") -> bytes:
    """A whole answer, or the head of one."""
    size = _STATUS.size + len(headers) + len(body)
    return b"".join((_HEADER.pack(size, kind, number), _STATUS.pack(status, len(headers)), headers, body))


def read_answer(payload: bytes) -> tuple[int, bytes, bytes]:
    """Status, headers and body."""
    status, length = _STATUS.unpack_from(payload)
    end = _STATUS.size + length
    return status, payload[_STATUS.size : end], payload[end:]


class TooLong(ValueError):
    """A frame is longer than any that we accept."""


class Frames:
    """Bytes in, frames out."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._need = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """The frames that are complete now: kind, number, payload.

        Raises:
            TooLong: one is over the limit.
        """
        if self._rest:
            self._rest += data
            if len(self._rest) < self._need:
                return
            data = bytes(self._rest)
            self._rest.clear()
        at, size = 0, len(data)
        while size - at >= _HEADER.size:
            length, kind, number = _HEADER.unpack_from(data, at)
            if length > self._limit:
                raise TooLong(f"a frame of {length} bytes")
            end = at + _HEADER.size + length
            if end > size:
                break
            yield kind, number, data[at + _HEADER.size : end]
            at = end
        self._keep(data, at)

    def _keep(self, data: bytes, at: int) -> None:
        if at < len(data):
            self._rest += data[at:]
            known = len(self._rest) >= _HEADER.size
            self._need = _HEADER.size + (_HEADER.unpack_from(self._rest)[0] if known else 0)
