"""The connection between the server and the agent of one sandbox."""

import asyncio
from collections.abc import Callable
from typing import cast

from ors.errors import SandboxDead, SandboxLimit
from ors.sandbox.inside import framed

HEAD = 9
LARGEST = 2**20
"""Largest answer. The agent sends no larger one; a program that has taken its place might."""

Answer = Callable[[bytes, bytes], None]
"""Takes the kind and the content of an answer; kind b"" is the end of the sandbox."""


class AgentChannel(asyncio.Protocol):
    """Sends requests, and passes each answer to whoever waits for that id."""

    def __init__(self) -> None:
        self._waiting: dict[int, Answer] = {}
        self._last = 0
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self.closed = asyncio.get_running_loop().create_future()
        self.fate: Callable[[], SandboxDead | SandboxLimit] | None = None
        """Makes the error of every request after the end."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class

    def expect(self, take: Answer, number: int | None = None) -> int:
        """Reserves an id for a request; `take` gets its answers.

        Raises:
            SandboxDead: the host has ended the sandbox.
            SandboxLimit: a program in it has.
        """
        if self.fate is not None:
            raise self.fate()
        if number is None:
            number = self._last = self._last + 1
        self._waiting[number] = take
        return number

    def forget(self, number: int) -> None:
        self._waiting.pop(number, None)

    def send(self, *request: object) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(framed(request))

    def send_raw(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        """Called by asyncio. The bytes come from inside the sandbox: nothing of them is believed."""
        self._buffer += data
        while len(self._buffer) >= HEAD:
            size = int.from_bytes(self._buffer[5:HEAD], "big")
            if size > LARGEST:
                self.close()
                return
            if len(self._buffer) < HEAD + size:
                return
            number, kind = int.from_bytes(self._buffer[:4], "big"), bytes(self._buffer[4:5])
            content = bytes(self._buffer[HEAD : HEAD + size])
            del self._buffer[: HEAD + size]
            try:
                self._waiting.get(number, _ignore)(kind, content)
            except ValueError:  # an answer that the agent does not give
                self.close()
                return

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

    def end(self, fate: Callable[[], SandboxDead | SandboxLimit]) -> None:
        """Tells all who wait, or ask later, that the sandbox has ended."""
        self.fate = fate
        waiting, self._waiting = self._waiting, {}
        for take in waiting.values():
            take(b"", b"")

    def close(self) -> None:
        """Ends the connection, which ends the sandbox."""
        if self._transport is not None:
            self._transport.abort()


def _ignore(kind: bytes, content: bytes) -> None:
    """Drops an answer that nobody waits for."""
