"""Answers that go on: events for those who watch, as they happen."""

from collections.abc import Callable

from ors._json import dumps

Send = Callable[[bytes], bool]
"""Takes a part of the stream, or says that the reader has not caught up with the last one."""


class Feed:
    """A stream of events that ends when its reader leaves.

    A reader who does not keep up misses events, and is told how many: nobody waits for those who watch.
    """

    def __init__(self, on_open: Callable[["Feed"], None], on_close: Callable[["Feed"], None]) -> None:
        self._on_open = on_open
        self._on_close = on_close
        self._send: Send | None = None
        self._missed = 0

    def open(self, send: Send) -> None:
        """The reader is there."""
        self._send = send
        self._on_open(self)

    def close(self) -> None:
        """The reader has left."""
        if self._send is not None:
            self._send = None
            self._on_close(self)

    def tell(self, part: bytes) -> None:
        """Sends an event, unless the reader is too slow for it."""
        if self._send is None:
            return
        told = event("missed", self._missed) + part if self._missed else part
        if self._send(told):
            self._missed = 0
        else:
            self._missed += 1


def event(name: str, value: object) -> bytes:
    """An event whose data is JSON, which has no line ends of its own."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), dumps(value))
