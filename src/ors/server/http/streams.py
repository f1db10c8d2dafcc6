"""How requests are answered: at once, or by a stream that writes to a sink."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from ors._json import dumps
from ors._protocol import task_id_event
from ors._sse import PING
from ors.errors import ORSError
from ors.server.http.answers import STREAM, Answer, Headers, failure, refusal
from ors.server.http.requests import Request
from ors.server.http.timers import IntervalTimer
from ors.server.sessions.calls import Call

log = logging.getLogger("ors.server")

AT_ONCE_SECONDS = 0.002
"""A call that is done by then is answered in one write; otherwise its stream opens with the task id."""


class Sink(Protocol):
    """Where one answer goes: a client's connection, a link, or an ASGI server."""

    def answer(self, outcome: "Outcome") -> None:
        """Answers with an outcome; nothing of the answer has been sent before."""

    def whole(self, status: int, headers: Headers, body: bytes, rest: bytes = b"") -> bool:
        """Sends a complete answer; says whether the reader was still there."""

    def head(self, status: int, headers: Headers, body: bytes = b"") -> None:
        """Begins an answer of unknown length, with its first bytes."""

    def part(self, data: bytes) -> None:
        """Sends more of the body."""

    def end(self, data: bytes) -> bool:
        """Sends the last of the body; says whether the reader was still there."""

    def abort(self) -> None:
        """Breaks the answer off: it cannot be completed."""


class Stream:
    """An answer that is written to a sink over time."""

    __slots__ = ()

    def begin(self, sink: Sink) -> None:
        """Writes the answer to `sink`, from now on."""
        raise NotImplementedError

    def leave(self) -> None:
        """Stops writing: the reader has left."""
        raise NotImplementedError

    def pause(self) -> None:
        """Holds back: the reader is slower than the stream."""

    def resume(self) -> None:
        """Goes on: the reader has caught up."""

    def stop(self) -> None:
        """Completes the answer if it would go on for as long as its reader stays."""


Outcome = Answer | Stream
"""What becomes of a request."""


class CallStream(Stream):
    """The events of one call. It opens if the call takes its time, and pings until the call is done."""

    # Defaults of the class, so that making one sets no more than it needs.
    _sink: Sink | None = None
    _opened = False
    _paused = False

    def __init__(self, call: Call, timers: "CallTimers") -> None:
        self._call = call
        self._timers = timers

    def begin(self, sink: Sink) -> None:
        """Waits for the call, or writes its events if it is done."""
        call = self._call
        if call.tail is None:
            self._sink = sink
            call.listen(self._done)
            self._timers.opening.add(self)
        elif sink.whole(200, STREAM, call.head, call.tail):
            call.taken()

    def open(self) -> None:
        """Sends the task id: the call takes its time."""
        if self._sink is not None:
            self._opened = True
            self._sink.head(200, STREAM, self._call.head)
            self._timers.pings.add(self)

    def ping(self) -> None:
        """Keeps the stream alive."""
        if self._sink is not None:
            if not self._paused:
                self._sink.part(PING)
            self._timers.pings.add(self)

    def _done(self) -> None:
        call, sink = self._call, self._sink
        if sink is None or call.tail is None:
            return
        self._sink = None
        if self._opened:
            self._timers.pings.remove(self)
            sent = sink.end(call.tail)
        else:
            self._timers.opening.remove(self)
            sent = sink.whole(200, STREAM, task_id_event(call.id), call.tail)
        if not sent:
            call.missed()

    def pause(self) -> None:
        """Sends no pings."""
        self._paused = True

    def resume(self) -> None:
        """Sends pings again."""
        self._paused = False

    def leave(self) -> None:
        """Stops writing. The call goes on: its client may come back for it."""
        if self._sink is not None:
            self._sink = None
            self._call.unlisten(self._done)
            self._timers.opening.remove(self)
            self._timers.pings.remove(self)


class CallTimers:
    """When the streams of calls open, and when they ping."""

    def __init__(self, ping_seconds: float) -> None:
        self.opening = IntervalTimer(AT_ONCE_SECONDS, CallStream.open)
        self.pings = IntervalTimer(ping_seconds, CallStream.ping)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begins, on that loop."""
        self.opening.loop = self.pings.loop = loop


class Feed(Stream):
    """A stream of events that ends when its reader leaves.

    A reader who does not keep up misses events, and is told how many: nobody waits for those who watch.
    """

    def __init__(self, on_open: Callable[["Feed"], None], on_close: Callable[["Feed"], None]) -> None:
        self._on_open = on_open
        self._on_close = on_close
        self._sink: Sink | None = None
        self._paused = False
        self._missed = 0

    def begin(self, sink: Sink) -> None:
        """Opens the stream; events follow as they happen."""
        self._sink = sink
        sink.head(200, STREAM)
        self._on_open(self)

    def leave(self) -> None:
        """Closes: the reader has left."""
        if self._sink is not None:
            self._sink = None
            self._on_close(self)

    def stop(self) -> None:
        """Ends the stream, though its reader is there."""
        sink = self._sink
        self.leave()
        if sink is not None:
            sink.end(b"")

    def pause(self) -> None:
        """Drops events until the reader has caught up."""
        self._paused = True

    def resume(self) -> None:
        """Sends events again."""
        self._paused = False

    def tell(self, part: bytes) -> None:
        """Sends an event, unless the reader is too slow for it."""
        if self._sink is None:
            return
        if self._paused:
            self._missed += 1
            return
        told = event("missed", self._missed) + part if self._missed else part
        self._missed = 0
        self._sink.part(told)


def event(name: str, value: object) -> bytes:
    """An event whose data is JSON, which has no line ends of its own."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), dumps(value))


class Later(Stream):
    """An outcome that is still to come from a coroutine.

    When its reader leaves, the coroutine goes on, unless the request only waits in line.
    """

    def __init__(
        self, request: Request, coming: Coroutine[Any, Any, Outcome], tasks: set[asyncio.Task[None]]
    ) -> None:
        self._request = request
        self._coming = coming
        self._tasks = tasks  # holds the task if nobody else does
        self._task: asyncio.Task[None] | None = None
        self._sink: Sink | None = None

    def begin(self, sink: Sink) -> None:
        """Waits for the outcome, and answers with it."""
        self._sink = sink
        self._task = task = asyncio.get_running_loop().create_task(self._wait())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _wait(self) -> None:
        outcome: Outcome | None = None
        try:
            outcome = await self._coming
        except ORSError as error:
            outcome = refusal(error)
        except Exception as error:
            log.error("%s %s failed", self._request.method, self._request.path, exc_info=error)
            outcome = failure()
        finally:
            self._settle(outcome)

    def _settle(self, outcome: Outcome | None) -> None:
        sink, self._sink = self._sink, None
        if sink is None:
            if isinstance(outcome, Stream):
                outcome.leave()
        else:
            sink.answer(outcome or failure())  # none if it was cancelled from within

    def leave(self) -> None:
        """Answers nobody. What waits in line is given up."""
        self._sink = None
        if self._task is None:
            self._coming.close()
        elif self._request.waiting:
            self._task.cancel()
