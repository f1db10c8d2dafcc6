"""Requests whose bodies have many values: parsed in a thread, one at a time, within a budget of memory."""

import asyncio
from collections.abc import Callable

from ors.errors import Unavailable
from ors.limits import ARRIVING_BYTES
from ors.server.episodes.threads import Threads
from ors.server.http.answers import Answer
from ors.server.http.body_values import MOST_VALUES, VALUE_BYTES, parsed, values
from ors.server.http.requests import Request
from ors.server.http.routing import Coming
from ors.server.http.streams import Outcome, Stream


class HeavyBodies:
    """Parses such bodies. Parsing holds the interpreter's lock: more threads would only hold up the loop."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._bytes = 0
        self._turn = asyncio.Lock()

    async def answered(self, request: Request, answer: Callable[[], Outcome | Coming]) -> Outcome:
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
