"""The order in which the calls of one session run."""

import asyncio
from collections import deque


class CallOrder:
    """Runs calls one at a time, in the order of arrival. Concurrent ones may overlap with each other."""

    __slots__ = ("_alone", "_queue", "_running")

    def __init__(self) -> None:
        self._running = 0
        self._alone = False
        self._queue: deque[tuple[bool, asyncio.Future[None]]] | None = None

    def enter_at_once(self, alone: bool) -> bool:
        """Takes the turn if no other call is first, and returns whether it did."""
        if self._queue or (self._running and (alone or self._alone)):
            return False
        self._running += 1
        self._alone = alone
        return True

    async def enter(self, alone: bool) -> None:
        """Waits for the turn. Each turn needs a `leave`."""
        if self.enter_at_once(alone):
            return
        if self._queue is None:
            self._queue = deque()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (alone, turn)
        self._queue.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the turn came with the cancellation
                self.leave()
            elif entry in self._queue:
                self._queue.remove(entry)
                self._admit()
            raise

    def leave(self) -> None:
        """Ends the turn, and lets the next call run."""
        self._running -= 1
        self._alone = False
        if self._queue:
            self._admit()

    def _admit(self) -> None:
        while self._queue:
            alone, turn = self._queue[0]
            if self._running and (alone or self._alone):
                return
            self._queue.popleft()
            if not turn.done():
                self._running += 1
                self._alone = alone
                turn.set_result(None)
