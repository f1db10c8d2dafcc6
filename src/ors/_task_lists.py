"""What an environment class lists, asked for once and kept by that class alone."""

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from ors._tools import Spawn, call
from ors.types import JSONObject

if TYPE_CHECKING:  # both take time to import, which an author's own code need not wait for
    import asyncio
    from concurrent.futures import Future


class Listing:
    """The task lists of one class, by split.

    Whoever asks first lists; whoever asks meanwhile waits for that, from any thread or event loop.
    """

    def __init__(self, owner: type) -> None:
        self._owner: Any = owner
        self._lock = threading.Lock()
        self._lists: dict[str, Future[Sequence[JSONObject]]] = {}
        self._at_work: set[asyncio.Task[None]] = set()

    def __reduce__(self) -> tuple[type["Listing"], tuple[type]]:
        # A class that travels to another process lists anew there.
        return Listing, (self._owner,)

    def known(self, split: str) -> Sequence[JSONObject] | None:
        """The tasks of a split, if they have been listed."""
        future = self._lists.get(split)
        return future.result() if future is not None and future.done() else None

    async def tasks(self, split: str, spawn: Spawn | None = None) -> Sequence[JSONObject]:
        """The tasks of a split, as `list_tasks` gives them."""
        import asyncio
        from concurrent.futures import Future

        with self._lock:
            future = self._lists.get(split)
            mine = future is None
            if future is None:
                future = self._lists[split] = Future()
        if mine:
            # A task of its own: whoever asked first may leave, and the others still wait.
            listing = asyncio.create_task(self._list(split, future, spawn))
            self._at_work.add(listing)
            listing.add_done_callback(self._at_work.discard)
        return await asyncio.shield(asyncio.wrap_future(future))

    async def _list(self, split: str, future: "Future[Sequence[JSONObject]]", spawn: Spawn | None) -> None:
        try:
            future.set_result(self._checked(await call(self._owner.list_tasks, split, spawn=spawn)))
        except BaseException as error:
            # A failure is told to those who wait and not kept: the next one asks again.
            with self._lock:
                self._lists.pop(split, None)
            interrupted = RuntimeError(f"listing tasks was interrupted: {type(error).__name__}")
            future.set_exception(error if isinstance(error, Exception) else interrupted)

    def _checked(self, listed: Any) -> Sequence[JSONObject]:
        where = f"{self._owner.__name__}.list_tasks"
        if isinstance(listed, str | bytes | Mapping):
            raise TypeError(f"{where} returns a list of tasks, not {type(listed).__name__}")
        # A generator gives its tasks only once, so they are kept.
        tasks: Sequence[Any] = listed if isinstance(listed, Sequence) else list(listed)
        if isinstance(tasks, list | tuple):  # another sequence may make its items as they are asked for
            for index, task in enumerate(tasks):
                if not isinstance(task, Mapping | BaseModel):
                    kind = type(task).__name__
                    raise TypeError(f"{where}: a task is an object, but number {index} is {kind}")
        return tasks
