"""A server on wires that are no sockets: what it costs without the kernel."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import uvloop

from bench import plans
from bench.environment import Bench
from bench.plans import Step
from ors import Server
from ors.server.connections.connection import Connection


class Wire(asyncio.Transport):
    """One connection: takes what the server writes, and knows when an answer is complete."""

    def __init__(self, protocol: Any) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self._protocol = protocol
        self.received = b""
        protocol.connection_made(self)

    def send(self, request: bytes) -> None:
        """Gives the server a request."""
        self.received = b""
        self._protocol.data_received(request)

    @property
    def answered(self) -> bool:
        """Whether the whole answer has arrived."""
        head, _, body = self.received.partition(b"\r\n\r\n")
        _, _, length = head.lower().partition(b"content-length: ")
        if length:
            return len(body) >= int(length.split(b"\r\n", 1)[0])
        return body.endswith(b"0\r\n\r\n")

    @property
    def streamed(self) -> bool:
        """Whether the last event of a call has arrived: the same, at a tenth of the cost."""
        return self.received.endswith((b"\n\n", b"\r\n0\r\n\r\n")) and b"\nevent: e" in self.received

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.received += data

    def is_closing(self) -> bool:
        return False

    def close(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Wires:
    """A server in this process, and so many connections to it with a session each."""

    def __init__(self, make: Callable[[], asyncio.Protocol], connections: int) -> None:
        self._wires = [Wire(make()) for _ in range(connections)]
        self._requests: list[bytes] = []

    async def open(self, step: Step) -> None:
        """Makes the sessions, and the requests that `round` sends."""
        create_session, create, prompt = (each.canned() for each in plans.OPEN)
        for place in range(len(self._wires)):
            sid = session_id(await self.ask(create_session, "", place))
            await self.ask(create, sid, place)
            await self.ask(prompt, sid, place)
            answer = await self.ask(step.canned(), sid, place)
            assert step.canned().expected.encode() in answer, answer
            self._requests.append(_request(step.canned(), sid))

    async def ask(self, step: Step, sid: str, place: int = 0) -> bytes:
        """The whole answer to one request, headers and all."""
        wire = self._wires[place]
        wire.send(_request(step, sid))
        while not wire.answered:  # noqa: ASYNC110 (an event would be measured too)
            await asyncio.sleep(0)
        return wire.received

    async def round(self) -> None:
        """One call on every connection, all at once."""
        wires = self._wires
        for wire, request in zip(wires, self._requests, strict=True):
            wire.send(request)
        while not all(wire.streamed for wire in wires):  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def timed(self, rounds: int) -> float:
        """Seconds of CPU for a call, of the least disturbed of ten parts."""
        parts = []
        for _ in range(10):
            began = time.process_time()
            for _ in range(rounds // 10):
                await self.round()
            parts.append((time.process_time() - began) / (rounds // 10) / len(self._wires))
        return min(parts)


async def ours(connections: int) -> Wires:
    """Our server, with all that it is by default."""
    clients = Server([Bench]).runner("127.0.0.1", 0).clients
    return Wires(lambda: Connection(clients.context, clients.open), connections)


def run(main: Callable[[], Any]) -> Any:
    """Runs a coroutine function on the loop that our server runs on."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def _request(step: Step, sid: str) -> bytes:
    lines = [
        f"{step.method} {step.path} HTTP/1.1",
        "Host: 127.0.0.1",
        f"X-Session-ID: {sid}",
        "Content-Type: application/json",
        f"Content-Length: {len(step.body)}",
        f"Accept: {'text/event-stream' if step.ends else '*/*'}",
    ]
    return "\r\n".join([*lines, "", step.body]).encode()


def session_id(answer: bytes) -> str:
    """The id in the event stream that answers `/create_session`."""
    return answer.decode().split("data: ", 1)[1].split("\n")[0].strip()
