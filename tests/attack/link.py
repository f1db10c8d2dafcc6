"""One end of a link between servers, spoken by hand, and frames that nobody should send."""

import json
import random
import socket
import struct
import time

HEADER = struct.Struct(">IBI")
LENGTHS = struct.Struct(">BHHI")
STATUS = struct.Struct(">HH")
CALLED = struct.Struct(">HHH")
REQUEST, LEAVE, CREDIT, FIND, CALL = range(1, 6)
HELLO, LOAD, WHOLE, HEAD, PART, END, FOUND, BYE, REFUSED, RESULT = range(16, 26)
KINDS = (*range(7), *range(15, 27), 255)
ANSWERS = (WHOLE, HEAD)
PATHS = (
    b"/health", b"/ground/tools", b"/ground/tasks", b"/ground/prompt", b"/ping", b"/-/sessions", b"/-/link",
    b"", b"*", b"/\xff\xfe", b"/\xed\xa0\x80", b"//", b"/ground/\x00", b"http://[", b"nowhere",
    b"/-/sessions/" + b"\xff" * 9, b"/" + b"a" * 60_000,
)  # fmt: skip
PARTS = (b"", b"x", b"HTTP/1.1 200 OK\r\n\r\n", b"y" * 70_000)

UPGRADE = b"GET /-/link HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: ors-link\r\n\r\n"
MULTIPLEXED = b"GET /-/mux HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: ors-mux/1\r\n\r\n"
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: ors-link\r\n\r\n"


def frame(kind: int, number: int, payload: bytes = b"") -> bytes:
    """A frame."""
    return HEADER.pack(len(payload), kind, number) + payload


def request(
    number: int, method: bytes, path: bytes, headers: list[bytes], body: bytes = b"", query: bytes = b""
) -> bytes:
    """A request's frame; headers are names and values in turn."""
    lines = b"\n".join(headers)
    lengths = LENGTHS.pack(len(method), len(path), len(query), len(lines))
    return frame(REQUEST, number, lengths + method + path + query + lines + body)


def call(number: int, path: bytes, sid: bytes, key: bytes, body: bytes) -> bytes:
    """A tool call's frame."""
    lengths = CALLED.pack(len(path), len(sid), len(key))
    return frame(CALL, number, lengths + path + sid + key + body)


def tasks(number: int) -> bytes:
    """A request with an answer of about 50 KB."""
    return request(number, b"POST", b"/ground/tasks", [b"host", b"localhost"], b'{"split":"train"}')


def split(data: bytes) -> tuple[list[tuple[int, int, bytes]], bytes]:
    """The whole frames of these bytes, and what is left."""
    found, at = [], 0
    while len(data) - at >= HEADER.size:
        length, kind, number = HEADER.unpack_from(data, at)
        if len(data) - at - HEADER.size < length:
            break
        found.append((kind, number, data[at + HEADER.size : at + HEADER.size + length]))
        at += HEADER.size + length
    return found, data[at:]


def status(payload: bytes) -> int:
    """The status of an answer's frame."""
    return int(STATUS.unpack_from(payload)[0])


def linked(address: tuple[str, int], upgrade: bytes = UPGRADE) -> socket.socket:
    """A link to a server, which has said hello."""
    end = socket.create_connection(address, 20)
    end.sendall(upgrade)
    heard = b""
    while b"}" not in heard:
        part = end.recv(65536)
        assert part, heard
        heard += part
    assert heard.startswith(b"HTTP/1.1 101"), heard
    return end


def stuffed(end: socket.socket, data: bytes, seconds: float) -> int:
    """Sends for so long, or until nothing is taken for a second; nothing is read. Gives how much went."""
    end.settimeout(1.0)
    sent, deadline = 0, time.monotonic() + seconds
    while sent < len(data) and time.monotonic() < deadline:
        try:
            sent += end.send(data[sent : sent + 65536])
        except OSError:  # it takes no more, or has closed
            break
    return sent


class Noise:
    """Frames without end, the same for the same seed."""

    def __init__(self, seed: str, sid: str) -> None:
        self._random = random.Random(seed)
        self._sid = sid.encode()

    def asked(self) -> bytes:
        """Makes a frame that a router may send, or nearly."""
        if self._random.random() < 0.4:
            return self._mutated(self._request())
        return self._random.choice((self._request, self._call, self._word, self._word, self._odd))()

    def _request(self) -> bytes:
        pick = self._random.choice
        path = pick(PATHS)
        headers = [b"host", b"localhost", b"x-session-id", pick((self._sid, b"nobody", b"\xff", b""))]
        headers += pick(([], [b"accept", b"text/event-stream"], [b"origin", b"http://evil"], [b"", b""]))
        method = pick((b"GET", b"POST", b"HEAD", b"OPTIONS", b"DELETE", b"", b"\xff", b"get", b"CONNECT"))
        body = pick((b"", b"{}", b'{"split":"train"}', b"[" * 2000, self._random.randbytes(30)))
        query = pick((b"", b"offset=" + b"9" * 5000, b"a=%ff&&", self._random.randbytes(9)))
        return request(self._number(), method, path, headers, body, query)

    def _call(self) -> bytes:
        pick = self._random.choice
        path = pick((b"/ground/call", b"/ground/call", *PATHS))
        body = pick((b'{"name":"note","input":{"name":"x"}}', b"", b"{}", b"[", b"\xff", b"[" * 2000))
        made = call(
            self._number(),
            path,
            pick((self._sid, b"", b"\xff")),
            pick((b"k", b"", b"\n", b"\xff" * 300)),
            body,
        )
        return self._mutated(made) if self._random.random() < 0.3 else made

    def _word(self) -> bytes:
        kind = self._random.choice((LEAVE, CREDIT, FIND, *KINDS))
        return frame(kind, self._number(), self._random.randbytes(self._random.randrange(9)))

    def _odd(self) -> bytes:
        pick = self._random.choice
        return pick((
            HEADER.pack(2**32 - 1, REQUEST, 1),
            HEADER.pack(40_000_000, REQUEST, 1) + b"x" * 100,
            frame(REQUEST, 0, LENGTHS.pack(255, 65535, 65535, 2**32 - 1)),
            frame(REQUEST, 1, b""),
            frame(CALL, 1, b""),
            frame(CALL, 1, b"\xff" * 6),
            frame(CREDIT, self._number(), b"\xff" * 64),
            frame(FIND, self._number(), self._sid),
            frame(FIND, self._number(), b"\xff\xff"),
            self._random.randbytes(50),
        ))  # fmt: skip

    def _number(self) -> int:
        return self._random.choice((0, 1, 2, self._random.randrange(2**32), 2**32 - 1))

    def _mutated(self, data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(self._random.randrange(1, 4)):
            changed[self._random.randrange(len(changed))] = self._random.randrange(256)
        return bytes(changed)

    def answered(self, numbers: list[int]) -> bytes:
        """Makes a frame that a server may send, or nearly, with numbers of the router."""
        pick = self._random.choice
        number = pick((*numbers, 0, self._random.randrange(2**32)))
        headers = pick(
            (b"content-type: text/plain\r\n", b"", b"x: y\r\n\r\nHTTP/1.1 200 OK\r\n", b"\xff" * 40)
        )
        code = pick((200, 200, 404, 0, 99, 101, 204, 304, 999, 65535))
        good = (
            frame(pick(ANSWERS), number, STATUS.pack(code, len(headers)) + headers + b"body"),
            frame(pick(ANSWERS), number, STATUS.pack(code, 65535) + headers),
            frame(pick((PART, END, END)), number, pick(PARTS)),
            frame(HELLO, 0, json.dumps(pick(({}, [], 1, {"slot": "x"}, {"slot": 2**40}))).encode()),
            frame(LOAD, 0, pick((b"[]", b"{}", b"[1]", b'["a","b"]', b"[-1,true]", b"nonsense", b"[1,2,3]"))),
            frame(FOUND, number, pick((b"2", b"", b"x", b"9" * 5000))),
            frame(REFUSED, number),
            frame(pick(KINDS), number, self._random.randbytes(20)),
        )  # fmt: skip
        made = pick(good)
        return self._mutated(made) if self._random.random() < 0.2 else made
