"""Prompts of sessions: each environment is asked once, and its answer is kept within a budget."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

KEPT_BYTES = 64 * 2**20
ENTRY_BYTES = 250
"""What an entry takes besides the prompt."""


class _Asking(NamedTuple):
    """A request that asks an environment for its prompt, and the answer for others who want it meanwhile."""

    task: asyncio.Task[Any] | None
    answer: asyncio.Future[bytes]


class Prompts:
    """The prompt of each session, as JSON; beyond the budget, the oldest are dropped.

    Asking an environment again might change the episode. One whose prompt was dropped is asked again.
    """

    def __init__(self, budget: int = KEPT_BYTES) -> None:
        self._budget = budget
        self._by_sid: OrderedDict[str, bytes] = OrderedDict()
        self._same: dict[bytes, tuple[bytes, int]] = {}
        """Each prompt once, and how many sessions have it: forks, and episodes on the same task."""
        self._asking: dict[str, _Asking] = {}
        self._bytes = 0

    def get(self, sid: str) -> bytes | None:
        """The prompt of a session, if it was asked for and is kept."""
        return self._by_sid.get(sid)

    async def asked(self, sid: str, ask: Callable[[], Awaitable[bytes]]) -> bytes:
        """The kept prompt of a session, or what `ask` returns; all who come meanwhile share one run of it."""
        kept = self._by_sid.get(sid)
        if kept is not None:
            return kept
        if sid in self._asking:
            return await asyncio.shield(self._asking[sid].answer)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        asking = self._asking[sid] = _Asking(asyncio.current_task(), answer)
        try:
            prompt = await ask()
            if self._asking.get(sid) is asking:  # otherwise the session has ended meanwhile
                self.keep(sid, prompt)
        except asyncio.CancelledError:
            answer.cancel()
            raise
        except BaseException as error:
            answer.set_exception(error)
            answer.exception()  # perhaps nobody else asks for it
            raise
        else:
            answer.set_result(prompt)
            return prompt
        finally:
            if self._asking.get(sid) is asking:
                del self._asking[sid]

    def keep(self, sid: str, prompt: bytes) -> None:
        """Keeps the prompt of a session, instead of an earlier one."""
        if sid in self._by_sid:
            self._drop(sid)
        # A copy: orjson leaves 4 KB reserved behind a result.
        prompt, holders = self._same.get(prompt) or (bytes(memoryview(prompt)), 0)
        self._same[prompt] = prompt, holders + 1
        self._by_sid[sid] = prompt
        self._bytes += ENTRY_BYTES + (0 if holders else len(prompt))
        while self._bytes > self._budget:
            self._drop(next(iter(self._by_sid)))

    def end(self, sid: str) -> list[asyncio.Task[Any]]:
        """Forgets the prompt of a session that ends; returns the cancelled task that asks for it, if any."""
        if sid in self._by_sid:
            self._drop(sid)
        if sid not in self._asking:
            return []
        task = self._asking.pop(sid).task
        assert task is not None
        task.cancel()
        return [task]

    def _drop(self, sid: str) -> None:
        prompt = self._by_sid.pop(sid)
        _, holders = self._same.pop(prompt)
        if holders > 1:
            self._same[prompt] = prompt, holders - 1
        self._bytes -= ENTRY_BYTES + (0 if holders > 1 else len(prompt))
