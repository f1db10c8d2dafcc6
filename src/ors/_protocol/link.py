"""What the ends of links share: how frames are written, the end that asks, and flow control."""

import asyncio
import math
import struct
from collections.abc import Callable
from typing import Protocol, cast

from ors._protocol import frames

SWITCHED = b"HTTP/1.1 101"
AT_ONCE_BYTES = 64 * 1024
"""This much is written at once; less waits for the other frames of this turn of the event loop."""


class FrameWriter:
    """Writes all frames of one turn of the event loop together."""

    def __init__(self, loop: asyncio.AbstractEventLoop, at_once_frames: float = math.inf) -> None:
        self._loop = loop
        self.transport: asyncio.Transport | None = None
        self._at_once_frames = at_once_frames  # so many do not wait for the end of the turn
        self._unsent: list[bytes | memoryview] = []
        self._unsent_bytes = 0

    def write(self, frame: bytes | memoryview) -> None:
        if not self._unsent:
            self._loop.call_soon(self.flush)
        self._unsent.append(frame)
        self._unsent_bytes += len(frame)
        # A long write also shows whether the other end reads.
        if self._unsent_bytes > AT_ONCE_BYTES or len(self._unsent) >= self._at_once_frames:
            self.flush()

    def flush(self) -> None:
        unsent, self._unsent, self._unsent_bytes = self._unsent, [], 0
        if unsent and self.transport is not None:
            self.transport.write(b"".join(unsent))

    def close(self) -> None:
        """Closes the link when all is written."""
        self.flush()
        if self.transport is not None:
            self.transport.close()

    def cut(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class Pending(Protocol):
    """A request without its complete answer."""

    def take(self, kind: int, payload: bytes) -> None:
        """Takes a frame of the answer. Raises ValueError, struct.error."""

    def lost(self) -> None:
        """Ends it: the link is broken."""


class AskingEnd:
    """The end that asks. It begins with the HTTP request `upgrade`; when it closes, nothing is pending."""

    def __init__(self, upgrade: bytes, longest: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._frames = frames.Frames(longest)
        self.heard = self._loop.time()
        """When the other end was last heard from."""
        # Lets the other end work on the first requests while this end prepares the next. If all left at the
        # end of a turn, only one end would work at a time. With 32 sessions: 54,300 calls/s, not 30,550.
        self.out = FrameWriter(self._loop, at_once_frames=8)
        self.write = self.out.write
        self._upgrade = upgrade
        self._head = b""  # as much as was received of the answer to the upgrade
        self._switched = False
        self._number = 0
        self.pending: dict[int, Pending] = {}
        self._closing = False  # the other end has said goodbye

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.out.transport = asking = cast("asyncio.Transport", transport)  # uvloop's are not, by name
        asking.set_write_buffer_limits(high=2**20)
        asking.write(self._upgrade)

    def data_received(self, data: bytes) -> None:
        if not self._switched:
            self._head, end, data = (self._head + data).partition(b"\r\n\r\n")
            self._switched = bool(end)
            known = self._head.startswith(SWITCHED[: len(self._head)])
            if not known or len(self._head) > frames.PIECE_BYTES:
                self._refused(self._head)
                return
            if not end:
                return
        self.heard = self._loop.time()
        try:
            for kind, number, payload in self._frames.feed(data):
                pending = self.pending.get(number)
                if pending is None:  # it is about the link, or nobody waits for it any more
                    self._told(kind, number, payload)
                else:
                    pending.take(kind, payload)
        except (ValueError, struct.error) as error:
            self._misunderstood(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self.out.transport = None
        pending, self.pending = self.pending, {}
        for each in pending.values():
            each.lost()

    def _refused(self, head: bytes) -> None:
        self.cut()

    def _misunderstood(self, error: Exception) -> None:
        self.cut()

    def next_number(self) -> int:
        self._number = self._number + 1 & 0xFFFFFFFF or 1
        return self._number

    def _told(self, kind: int, number: int, payload: bytes) -> None:
        if kind == frames.BYE:
            self._closing = True
            self._close_if_idle()

    def done(self, number: int) -> None:
        self.pending.pop(number, None)
        if self._closing:
            self._close_if_idle()

    def _close_if_idle(self) -> None:
        if not self.pending:
            self.close()

    def close(self) -> None:
        """Closes the link when all is written."""
        self.out.close()

    def cut(self) -> None:
        self.out.cut()


class Window:
    """Flow control of one answer: the other end sends no more than `WINDOW_BYTES` that nobody has read."""

    __slots__ = ("_unread", "_write", "number", "paused")

    def __init__(self, write: Callable[[bytes], None], number: int = 0) -> None:
        self._write = write
        self.number = number
        self._unread = 0  # bytes read that the other end does not know of
        self.paused = False

    def read(self, count: int) -> None:
        """Lets as much follow as was read, unless the reader is paused."""
        self._unread += count
        if not self.paused and self._unread >= frames.WINDOW_BYTES // 2:
            self._write(frames.credit_frame(self.number, self._unread))
            self._unread = 0
