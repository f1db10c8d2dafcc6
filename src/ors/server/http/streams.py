"""Streams: answers that are written to a sink over time, and answers that come later."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, Protocol, TypeVar

from ors._json import dumps
from ors._protocol import PING_COMMENT, result_events, task_id_event
from ors.errors import ORSError, Unavailable
from ors.limits import ARRIVING_BYTES
from ors.server.episodes.threads import Threads
from ors.server.http.answers import STREAM, Answer, Headers, failure, refusal
from ors.server.http.requests import MOST_VALUES, VALUE_BYTES, Request, parsed, values
from ors.server.sessions.calls import Call

log = logging.getLogger("ors.server")
Waiting = TypeVar("Waiting", bound=Hashable)

AT_ONCE_SECONDS = 0.002
"""A call that is done by then is answered in one write; otherwise its stream opens with the task id first."""


class Sink(Protocol):
    """Destination of one answer: a client's connection, a link, or an ASGI server."""

    __slots__ = ()

    def answer(self, outcome: "Outcome") -> None:
        """Answers with an outcome; nothing of the answer has been sent before."""

    def whole(self, status: int, headers: Headers, body: bytes) -> bool:
        """Sends a complete answer; returns whether the reader was still connected."""

    def result(self, task_id: str, ending: bytes) -> bool:
        """Sends the answer to a call that has ended; returns whether the reader was still connected."""
        return self.whole(200, STREAM, task_id_event(task_id) + result_events(ending))

    def head(self, status: int, headers: Headers, body: bytes = b"") -> None:
        """Begins an answer of unknown length, with its first bytes."""

    def part(self, data: bytes) -> None:
        """Sends more of the body."""

    def end(self, data: bytes) -> bool:
        """Sends the last of the body; returns whether the reader was still connected."""

    def abort(self) -> None:
        """Aborts the answer: it cannot be completed."""


class Stream:
    """An answer that is written to a sink over time."""

    __slots__ = ()

    def begin(self, sink: Sink) -> None:
        """Starts to write the answer to `sink`."""
        raise NotImplementedError

    def leave(self) -> None:
        """Stops writing: the reader has left."""
        raise NotImplementedError

    def pause(self) -> None:
        """Stops writing for a while: the reader is too slow."""

    def resume(self) -> None:
        """Continues: the reader has caught up."""

    def stop(self) -> None:
        """Completes an answer that would never end by itself."""


Outcome = Answer | Stream
"""How a request is answered."""


class CallStream(Stream):
    """The events of one call: opens early if the call takes long, and pings until it is done."""

    # Class attributes, so that the constructor sets only two.
    _sink: Sink | None = None
    _opened = False
    _paused = False

    def __init__(self, call: Call, timers: "CallTimers") -> None:
        self._call = call
        self._timers = timers

    def begin(self, sink: Sink) -> None:
        call = self._call
        if call.ending is None:
            self._sink = sink
            if call.listener is None:  # the usual case, without a call of `listen`
                call.listener = self._done
            else:
                call.listen(self._done)
            self._timers.opening.add(self)
        elif sink.result(call.id, call.ending):
            call.taken()

    def open(self) -> None:
        """Sends the task id: the call takes long."""
        if self._sink is not None:
            self._opened = True
            self._sink.head(200, STREAM, task_id_event(self._call.id))
            self._timers.pings.add(self)

    def ping(self) -> None:
        if self._sink is not None:
            if not self._paused:
                self._sink.part(self.sign())
            self._timers.pings.add(self)

    def sign(self) -> bytes:
        """What shows that the call still runs."""
        return PING_COMMENT

    def _done(self) -> None:
        call, sink = self._call, self._sink
        if sink is None or call.ending is None:
            return
        self._sink = None
        if self._opened:
            self._timers.pings.remove(self)
            sent = sink.end(result_events(call.ending))
        else:
            self._timers.opening.remove(self)
            sent = sink.result(call.id, call.ending)
        if not sent:
            call.missed()

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False

    def leave(self) -> None:
        """Stops writing. The call goes on: its client may come back for it."""
        if self._sink is not None:
            self._sink = None
            self._call.unlisten(self._done)
            self._timers.opening.remove(self)
            self._timers.pings.remove(self)


class IntervalTimer(Generic[Waiting]):
    """Wakes each waiting stream once, an interval after it was added.

    One shared timer, since a timer or a task per stream costs ten to a hundred times as much (55 ns here).
    Streams may be woken late by a fortieth of the interval, so that those that began together share one.
    """

    def __init__(self, seconds: float, wake: Callable[[Waiting], None]) -> None:
        self._seconds = seconds
        self._wake = wake
        self._due: dict[Waiting, float] = {}  # in order, since all have the same interval
        self._timer: asyncio.TimerHandle | None = None
        self.loop: asyncio.AbstractEventLoop
        """The event loop; set before anything is added."""

    def add(self, waiting: Waiting) -> None:
        """Wakes `waiting` in one interval, unless it is removed before."""
        self._due[waiting] = self.loop.time() + self._seconds
        if self._timer is None:
            self._timer = self.loop.call_later(self._seconds, self._ring)

    def remove(self, waiting: Waiting) -> None:
        self._due.pop(waiting, None)

    def _ring(self) -> None:
        # After callbacks that are ready: uvloop runs timers first, and a call that is about to finish
        # would count as slow.
        self.loop.call_soon(self._wake_due)

    def _wake_due(self) -> None:
        self._timer = None
        now = self.loop.time()
        due = [waiting for waiting, at in self._due.items() if at <= now]
        for waiting in due:
            del self._due[waiting]
        if self._due:
            first = next(iter(self._due.values()))
            self._timer = self.loop.call_at(max(first, now + self._seconds / 40), self._ring)
        for waiting in due:
            self._wake(waiting)


class TimedStream(Hashable, Protocol):
    """An answer to a call, which may take long."""

    def open(self) -> None:
        """Begins: the call takes long."""

    def ping(self) -> None:
        """Shows that the call still runs."""


class CallTimers:
    """Timers that open the streams of calls, and ping."""

    def __init__(self, ping_seconds: float, at_once_seconds: float = AT_ONCE_SECONDS) -> None:
        self.opening: IntervalTimer[TimedStream] = IntervalTimer(at_once_seconds, lambda each: each.open())
        self.pings: IntervalTimer[TimedStream] = IntervalTimer(ping_seconds, lambda each: each.ping())

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self.opening.loop = self.pings.loop = loop


class Feed(Stream):
    """A stream of events that ends when its reader leaves.

    A slow reader misses events, and is told how many: nothing waits for a reader.
    """

    def __init__(self, on_open: Callable[["Feed"], None], on_close: Callable[["Feed"], None]) -> None:
        self._on_open = on_open
        self._on_close = on_close
        self._sink: Sink | None = None
        self._paused = False
        self._missed = 0

    def begin(self, sink: Sink) -> None:
        self._sink = sink
        sink.head(200, STREAM)
        self._on_open(self)

    def leave(self) -> None:
        if self._sink is not None:
            self._sink = None
            self._on_close(self)

    def stop(self) -> None:
        sink = self._sink
        self.leave()
        if sink is not None:
            sink.end(b"")

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False

    def tell(self, part: bytes) -> None:
        if self._sink is None:
            return
        if self._paused:
            self._missed += 1
            return
        told = event("missed", self._missed) + part if self._missed else part
        self._missed = 0
        self._sink.part(told)


def event(name: str, value: object) -> bytes:
    """Encodes an event whose data is JSON, which has no line breaks."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), dumps(value))


def failed(request: Request, error: Exception) -> Answer:
    """Makes the answer to a request that has raised, and logs what is no refusal."""
    if isinstance(error, ORSError):
        return refusal(error)
    log.error("%s %s failed", request.method, request.path, exc_info=error)
    return failure()


class Later(Stream):
    """The outcome of a coroutine.

    When its reader leaves, the coroutine goes on, unless the request is `waiting`.
    """

    def __init__(
        self,
        request: Request,
        coming: Coroutine[Any, Any, Outcome],
        tasks: set[asyncio.Task[None]],
        failed: Callable[[Request, Exception], Answer] = failed,
    ) -> None:
        self._request = request
        self._coming = coming
        self.tasks = tasks
        """Keeps a reference to the task."""
        self._failed = failed
        self._task: asyncio.Task[None] | None = None
        self._sink: Sink | None = None

    def begin(self, sink: Sink) -> None:
        self._sink = sink
        loop = asyncio.get_running_loop()
        self._task = task = asyncio.Task(self._wait(), loop=loop, name=self._request.path)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _wait(self) -> None:
        outcome: Outcome | None = None
        try:
            outcome = await self._coming
        except Exception as error:
            outcome = self._failed(self._request, error)
        finally:
            self._settle(outcome)

    def _settle(self, outcome: Outcome | None) -> None:
        sink, self._sink = self._sink, None
        if sink is None:
            if isinstance(outcome, Stream):
                outcome.leave()
        else:
            sink.answer(outcome or failure())  # None if the coroutine cancelled itself

    def leave(self) -> None:
        """Answers nobody. A request that is `waiting` is cancelled."""
        self._sink = None
        if self._task is None:
            self._coming.close()
        elif self._request.waiting:
            self._task.cancel()
            self._task.add_done_callback(lambda task: self._coming.close())  # if it was never begun


class HeavyBodies:
    """Parses bodies of many values in a thread, one at a time, within a budget of memory.

    Parsing holds the interpreter's lock: more threads would only hold up the loop.
    """

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._bytes = 0
        self._turn = asyncio.Lock()

    async def answered(
        self, request: Request, answer: Callable[[], Outcome | Coroutine[Any, Any, Answer]]
    ) -> Outcome:
        """Parses the body of a request, and then answers it.

        Raises:
            Unavailable: too much memory is taken by such bodies.
        """
        taken = 0
        try:
            taken += self._take(len(request.body), taken)
            async with self._turn:
                run = self._threads.run
                count = await run(values, request.body)
                taken += self._take(VALUE_BYTES * min(count, MOST_VALUES), taken)
                request.parsed = await run(parsed, request.body, count)
            outcome = answer()
            return outcome if isinstance(outcome, Answer | Stream) else await outcome
        finally:
            self._bytes -= taken

    def _take(self, size: int, taken: int) -> int:
        """Takes memory for a request that has `taken` some already. The only one gets what it needs."""
        if self._bytes > taken and self._bytes + size > ARRIVING_BYTES:
            text = f"Bodies of many values take over {ARRIVING_BYTES} bytes of memory; try again later"
            raise Unavailable(text, retry_after=1, reason="limit")
        self._bytes += size
        return size
