"""Forks of one session: new sessions that go on from where it stands.

A fork belongs to the requests that wait for it. When the last of them leaves, it is undone.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any

MOST_KEYS = 256
"""Idempotency keys of forks that a session remembers."""

Sids = list[str]


class Fork:
    """One fork, from its request to the ids of the new sessions."""

    __slots__ = ("_stopped", "_task", "_undo", "_wanted", "places")

    def __init__(self, places: int, undo: Callable[[Sids], None]) -> None:
        self.places = places
        """Places for sessions that are taken, and not used yet."""
        self._undo = undo
        self._wanted = 0  # requests that wait for the sessions, or have got them
        self._stopped = False
        self._task: asyncio.Task[Sids] | None = None

    def begin(self, work: Coroutine[Any, Any, Sids]) -> asyncio.Task[Sids]:
        """Starts the task that makes the sessions."""
        self._task = asyncio.get_running_loop().create_task(work)
        return self._task

    async def sids(self) -> Sids:
        """The ids of the new sessions. When the last request that waits is cancelled, all is undone."""
        assert self._task is not None
        self._wanted += 1
        try:
            return await asyncio.shield(self._task)
        except asyncio.CancelledError:
            self._wanted -= 1
            self.undo_if_unwanted()
            raise

    def stop(self) -> None:
        """Cancels the task, once: a second time would interrupt its cleaning up."""
        if self._task is not None and not self._stopped:
            self._stopped = True
            self._task.cancel()

    def undo_if_unwanted(self) -> None:
        """Stops the fork, or ends its sessions, unless a request waits for them or has got them."""
        assert self._task is not None
        if self._wanted and not self._stopped:
            return
        if not self._task.done():
            self.stop()
        elif not self._failed:
            self._stopped = True
            self._undo(self._task.result())

    @property
    def void(self) -> bool:
        """Whether there are no new sessions, and will be none."""
        return self._stopped or self._failed

    @property
    def _failed(self) -> bool:
        task = self._task
        return task is not None and task.done() and (task.cancelled() or task.exception() is not None)


class Forks:
    """The forks of one session: running ones, and those whose idempotency keys are remembered."""

    __slots__ = ("_by_key", "_running")

    def __init__(self) -> None:
        self._by_key: OrderedDict[str, Fork] = OrderedDict()
        self._running: dict[asyncio.Task[Sids], Fork] = {}

    def __len__(self) -> int:
        return len(self._running)

    def by_key(self, key: str | None) -> Fork | None:
        """The fork that was begun with that key, running or done; one that failed is forgotten."""
        known = None if key is None else self._by_key.get(key)
        return None if known is None or known.void else known

    def start(self, fork: Fork, work: Coroutine[Any, Any, Sids], key: str | None) -> asyncio.Task[Sids]:
        task = fork.begin(work)
        self._running[task] = fork
        task.add_done_callback(self._ended)
        if key is not None:
            self._by_key[key] = fork
            if len(self._by_key) > MOST_KEYS:
                self._by_key.popitem(last=False)
        return task

    def stop(self) -> list[asyncio.Task[Sids]]:
        """Cancels running forks, and returns their tasks."""
        for fork in self._running.values():
            fork.stop()
        return list(self._running)

    def _ended(self, task: asyncio.Task[Sids]) -> None:
        # Requests that wait count by now: they began in the same turn of the loop as the task.
        self._running.pop(task).undo_if_unwanted()
