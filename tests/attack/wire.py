"""Bytes sent to a front end and the answers that come back, read strictly and by hand."""

import re
import select
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

PATIENCE = 15.0
"""An answer that takes longer than this does not come."""
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) [^\r\n]*\r\n")


class Hung(AssertionError):
    """The other end neither answers nor closes."""

    def __init__(self, heard: bytes) -> None:
        super().__init__(f"no end after {heard[-300:]!r}")
        self.heard = heard


class Malformed(AssertionError):
    """The bytes are not a sequence of answers."""


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


def talk(
    address: tuple[str, int], pieces: Sequence[bytes], *, half_close: bool = False, patience: float = PATIENCE
) -> bytes:
    """Sends the pieces, each in a packet of its own, and reads until the other end closes.

    Raises:
        Hung: it does not.
    """
    heard = bytearray()
    deadline = time.monotonic() + patience
    waiting = [piece for piece in pieces if piece]
    with socket.create_connection(address, patience) as end:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end.setblocking(False)
        if half_close and not waiting:
            end.shutdown(socket.SHUT_WR)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Hung(bytes(heard))
            readable, writable, _ = select.select([end], [end] if waiting else [], [], left)
            if writable:
                _send(end, waiting)
                if not waiting and half_close:
                    with suppress(OSError):  # it may have closed already
                        end.shutdown(socket.SHUT_WR)
            if readable:
                try:
                    part = end.recv(2**16)
                except ConnectionResetError:
                    part = b""
                if not part:
                    return bytes(heard)
                heard += part


def _send(end: socket.socket, waiting: list[bytes]) -> None:
    try:
        sent = end.send(waiting[0])
    except (BrokenPipeError, ConnectionResetError):  # it has closed, as it may: its answer is still read
        waiting.clear()
        return
    if sent == len(waiting[0]):
        del waiting[0]
    else:
        waiting[0] = waiting[0][sent:]


def answers(heard: bytes, bodiless: Sequence[int] = ()) -> list[Answered]:
    """The answers that these bytes are; those at the places of `bodiless` are for HEAD.

    Raises:
        Malformed: they are not answers, one behind the other, up to the last byte.
    """
    found: list[Answered] = []
    while heard:
        line = _STATUS.match(heard)
        head, end, rest = heard.partition(b"\r\n\r\n")
        if line is None or not end:
            raise Malformed(f"no answer begins like this: {heard[:300]!r}")
        status, headers = int(line[1]), _headers(head)
        if 100 <= status < 200 and status != 101:
            heard = rest
            continue
        if status == 101:  # what follows is another protocol
            body, heard = rest, b""
        else:
            body, heard = (b"", rest) if len(found) in bodiless else _body(status, headers, rest)
        found.append(Answered(status, headers, body))
    return found


def _headers(head: bytes) -> dict[bytes, bytes]:
    headers: dict[bytes, bytes] = {}
    for line in head.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if not colon or b"\n" in line or name != name.strip() or name.lower() in _ONCE & headers.keys():
            raise Malformed(f"a header like this: {line!r}")
        headers[name.lower()] = value.strip()
    return headers


_ONCE = {b"content-length", b"transfer-encoding"}


def _body(status: int, headers: dict[bytes, bytes], rest: bytes) -> tuple[bytes, bytes]:
    if status in (204, 304):
        return b"", rest
    if headers.get(b"transfer-encoding") == b"chunked":
        return _chunks(rest)
    if b"content-length" not in headers:
        return rest, b""
    length = int(headers[b"content-length"])
    if len(rest) < length:
        raise Malformed(f"{len(rest)} of {length} bytes")
    return rest[:length], rest[length:]


def _chunks(rest: bytes) -> tuple[bytes, bytes]:
    body = b""
    while True:
        size, end, rest = rest.partition(b"\r\n")
        if not end or not re.fullmatch(rb"[0-9a-fA-F]+", size):
            raise Malformed(f"no chunk begins like this: {size[:100]!r}")
        length = int(size, 16)
        if rest[length : length + 2] != b"\r\n":
            raise Malformed("a chunk that does not end")
        body, rest = body + rest[:length], rest[length + 2 :]
        if not length:
            return body, rest


def reset(end: socket.socket) -> None:
    """Closes with a reset instead of an end."""
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        end.close()
