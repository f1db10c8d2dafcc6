"""A connection of the server with an application, a transport and a clock that a test drives step by step."""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from ors import Limits
from ors.errors import ORSError
from ors.server.connections.connection import Connection
from ors.server.connections.context import ConnectionContext, Open, Upgrade
from ors.server.connections.parser import RequestParser
from ors.server.connections.states import ANSWERING, READING
from ors.server.http.answers import Answer, refusal
from ors.server.http.requests import Request
from ors.server.http.streams import Outcome, Sink, Stream

HIGH = 1000
"""Unread bytes at which the transport tells the connection to pause."""
LONG = b"x" * (HIGH + 1)


class Held(Stream):
    """An answer that comes when the test says so."""

    sink: Sink | None = None

    def begin(self, sink: Sink) -> None:
        self.sink = sink

    def leave(self) -> None:
        self.sink = None


class Broken(Stream):
    """An answer that fails, maybe after its beginning."""

    def __init__(self, begun: bool) -> None:
        self._begun = begun

    def begin(self, sink: Sink) -> None:
        if self._begun:
            sink.head(200, Answer(200, b"").headers)
        raise RuntimeError("a bug")

    def leave(self) -> None: ...


class App:
    """Answers a request with its path and a long body, or when the test says so."""

    def __init__(self) -> None:
        self.accepts_sessions, self.id_prefix = True, ""
        self.limits = Limits(body_bytes=10_000)
        self.tasks: set[asyncio.Task[None]] = set()
        self.taken: list[str] = []
        self.bodies: list[bytes] = []
        self.held: Held = Held()
        self.asking: asyncio.Future[int] | None = None

    def admit(self, request: Request) -> int | Coroutine[Any, Any, int]:
        return self.limits.body_bytes if self.asking is None else self._asked(self.asking)

    async def _asked(self, asking: asyncio.Future[int]) -> int:
        return await asking

    def take(self, request: Request) -> Outcome:
        self.taken.append(request.path)
        self.bodies.append(request.body)
        match request.path:
            case "/held":
                self.held = Held()
                return self.held
            case "/broken" | "/broken/later":
                return Broken(request.path != "/broken")
            case "/short":
                return Answer(200, b"short")
            case path:
                return Answer(200, path.encode() + LONG)

    def refused(self, error: ORSError) -> Answer:
        return refusal(error)


class Pipe:
    """A transport with watermarks, whose client reads when the test says so.

    If it is `late`, it tells the connection to pause in the turn after too much was written.
    """

    def __init__(self, late: bool = False) -> None:
        self.protocol: Any
        self.unread = 0
        self.sent = b""
        self.reading = True
        self.closed = False
        self._late = late
        self._told = False

    def write(self, data: bytes) -> None:
        self.unread += len(data)
        self.sent += data
        if self._late:
            asyncio.get_running_loop().call_soon(self.tell)
        else:
            self.tell()

    def writelines(self, data: list[bytes]) -> None:
        self.write(b"".join(data))

    def read(self) -> None:
        self.unread = 0
        self.tell()

    def tell(self) -> None:
        if self.unread > HIGH and not self._told:
            self._told = True
            self.protocol.pause_writing()
        elif not self.unread and self._told:
            self._told = False
            self.protocol.resume_writing()

    def is_closing(self) -> bool:
        return self.closed

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None: ...

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True
        self.unread = 0

    def set_protocol(self, protocol: object) -> None:
        self.protocol = protocol

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return self.unread

    def get_extra_info(self, name: str) -> Any:
        return SimpleNamespace(family=socket.AF_INET, fileno=lambda: 3) if name == "socket" else None


class Clock:
    """An event loop whose time passes when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.call_soon: Callable[..., Any] = asyncio.get_running_loop().call_soon

    def time(self) -> float:
        return self.now


class Client:
    """A connection, the application behind it, and the client's end."""

    def __init__(self, late: bool = False) -> None:
        self.app = App()
        self.pipe = Pipe(late)
        self.clock = Clock()
        self.context = ConnectionContext(self.app)
        self.context.upgrades[b"other"] = Upgrade(b"/other", self._taken_over)
        self.connection = self.pipe.protocol = Connection(self.context, set(), self.clock)  # type: ignore[arg-type]
        self.connection.connection_made(self.pipe)  # type: ignore[arg-type]

    def _taken_over(
        self, transport: asyncio.Transport, open_: Open, headers: dict[bytes, bytes], rest: bytes
    ) -> None:
        transport.set_protocol(Other())

    def send(self, *requests: bytes) -> None:
        assert self.pipe.reading
        self.connection.data_received(b"".join(requests))

    def answer(self, outcome: Outcome) -> None:
        """Answers the request that is held."""
        assert self.app.held.sink is not None
        self.app.held.sink.answer(outcome)

    async def read(self) -> list[bytes]:
        """Reads all answers; returns each one's status and the path that it begins with."""
        for _ in range(100):
            self.pipe.read()
            await asyncio.sleep(0)
        found = [answer.partition(b"\r\n\r\n") for answer in self.pipe.sent.split(b"HTTP/1.1 ")[1:]]
        return [head[:4] + body.partition(b"x")[0][:10] for head, _, body in found]


class Other(asyncio.Protocol):
    """Another protocol, which ignores everything."""


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", *headers, "", ""]).encode()


def post(path: str, body: bytes, *headers: str) -> bytes:
    return get(path, f"Content-Length: {len(body)}", *headers) + body


Transition = tuple[Any, Any]


class _Checked:
    """The attribute `state`, which takes only changes of its table, and remembers them."""

    def __init__(self, slot: Any, table: dict[Any, frozenset[Any]], seen: set[Transition]) -> None:
        self._slot = slot
        self._table = table
        self._seen = seen

    def __get__(self, owner: Any, kind: type) -> Any:
        return self if owner is None else self._slot.__get__(owner, kind)

    def __set__(self, owner: Any, state: Any) -> None:
        before = getattr(owner, "state", state)
        if before is not state:
            self._seen.add((before, state))
            assert state in self._table[before], f"{before.name}, {state.name} is no transition"
        self._slot.__set__(owner, state)


@contextmanager
def checked_states() -> Iterator[set[Transition]]:
    """Raises in connections that change their state as no table says; yields the changes that happened."""
    seen: set[Transition] = set()
    tables: dict[type, dict[Any, frozenset[Any]]] = {Connection: ANSWERING, RequestParser: READING}
    with pytest.MonkeyPatch.context() as patched:
        for kind, table in tables.items():
            patched.setattr(kind, "state", _Checked(kind.__dict__["state"], table, seen))
        yield seen
    known = {before: after for table in tables.values() for before, after in table.items()}
    wrong = [f"{before.name}, {after.name}" for before, after in seen if after not in known[before]]
    assert not wrong, wrong  # an event loop may only have logged it
