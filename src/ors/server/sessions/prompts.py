"""Prompts of sessions: each environment is asked once, and its answer is kept within a budget."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any

KEPT_BYTES = 64 * 2**20
ENTRY_BYTES = 250
"""What an entry takes besides the prompt."""


class Prompts:
    """The prompt of each session, as JSON; beyond the budget, the oldest are dropped.

    Asking an environment again might change the episode. One whose prompt was dropped is asked again.
    """

    def __init__(self, budget: int = KEPT_BYTES) -> None:
        self._budget = budget
        self._by_sid: OrderedDict[str, bytes] = OrderedDict()
        self._same: dict[bytes, tuple[bytes, int]] = {}
        """Each prompt once, and how many sessions have it: forks, and episodes on the same task."""
        self._asking: dict[str, asyncio.Task[bytes]] = {}
        self._bytes = 0

    def get(self, sid: str) -> bytes | None:
        """The prompt of a session, if it was asked for and is kept."""
        return self._by_sid.get(sid)

    async def asked(self, sid: str, ask: Callable[[], Coroutine[Any, Any, bytes]]) -> bytes:
        """The kept prompt of a session, or what `ask` returns; those who come meanwhile share one run of it.

        Raises what `ask` raises, which is not kept.
        """
        kept = self._by_sid.get(sid)
        if kept is not None:
            return kept
        asking = self._asking.get(sid)
        if asking is None:
            asking = self._asking[sid] = asyncio.create_task(self._ask(sid, ask()))
        return await asyncio.shield(asking)

    async def _ask(self, sid: str, coming: Coroutine[Any, Any, bytes]) -> bytes:
        task = asyncio.current_task()
        try:
            prompt = await coming
            if self._asking.get(sid) is task:  # otherwise the session has ended meanwhile
                self.keep(sid, prompt)
            return prompt
        finally:
            if self._asking.get(sid) is task:
                del self._asking[sid]

    def keep(self, sid: str, prompt: bytes) -> None:
        """Keeps the prompt of a session, instead of an earlier one."""
        self._drop(sid)
        # A copy: orjson leaves 4 KB reserved behind a result.
        prompt, holders = self._same.get(prompt) or (bytes(memoryview(prompt)), 0)
        self._same[prompt] = prompt, holders + 1
        self._by_sid[sid] = prompt
        self._bytes += ENTRY_BYTES + (0 if holders else len(prompt))
        while self._bytes > self._budget:
            self._drop(next(iter(self._by_sid)))

    def end(self, sid: str) -> list[asyncio.Task[bytes]]:
        """Forgets the prompt of a session that ends; returns the cancelled task that asks for it, if any."""
        self._drop(sid)
        asking = self._asking.pop(sid, None)
        if asking is None:
            return []
        asking.cancel()
        return [asking]

    def _drop(self, sid: str) -> None:
        prompt = self._by_sid.pop(sid, None)
        if prompt is None:
            return
        _, holders = self._same.pop(prompt)
        if holders > 1:
            self._same[prompt] = prompt, holders - 1
        self._bytes -= ENTRY_BYTES + (0 if holders > 1 else len(prompt))
