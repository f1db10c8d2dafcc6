"""Tasks on the page: short forms of them for lists, and a search for a text, a bounded part at a time."""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import islice
from time import perf_counter
from typing import Any

from ors._json import dumps
from ors.errors import BadRequest
from ors.limits import REPLY_TASKS
from ors.server.episodes.environments import ServedEnvironment
from ors.server.sessions.admission import Keys

MOST_FOUND = 25
MOST_SECONDS = 0.1
"""After this, the answer says where the next request goes on."""
TURN_SECONDS = 0.001
"""How long the search keeps the event loop."""
FIRST_TASKS = 16
MOST_TASKS = 1024
"""Tasks that are asked for at once: few at first, since an environment may be slow to make them."""
MOST_TEXT = 1000
MOST_ITEMS = 4
MOST_CHARS = 60


class TaskPreviews:
    """Tasks as the owner of a session may see them."""

    def __init__(self, environments: Mapping[str, ServedEnvironment], keys: Keys) -> None:
        self._environments = environments
        self._keys = keys

    def whole(self, task: Any, environment: str, key: str) -> Any:
        """A task without the fields that the key may not see."""
        if self._keys.sees_private(key):
            return task
        return self._environments[environment].without_private([task])[0]

    def short(self, task: Any, environment: str, key: str) -> dict[str, Any]:
        """The first items of a task, cut to a few words each."""
        items = islice(dict(self.whole(task, environment, key)).items(), MOST_ITEMS)
        return {_short(str(name)): _short(value) for name, value in items}


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= MOST_CHARS else value[: MOST_CHARS - 1] + "…"
    if value is None or isinstance(value, bool | int | float):
        return value
    return "[…]" if isinstance(value, list | tuple) else "{…}"


class TaskSearch:
    """One request for the tasks of a split that contain a text."""

    def __init__(self, environment: ServedEnvironment, split: str, text: str, private: bool) -> None:
        """Prepares the search; without `private`, private fields are not searched either."""
        if len(text) > MOST_TEXT:
            raise BadRequest(f"text: expected at most {MOST_TEXT} characters")
        self._environment = environment
        self._split = split
        self._wanted = dumps(text)[1:-1].decode().casefold()  # escaped as in the JSON that is searched
        self._private = private
        self._found: list[dict[str, Any]] = []

    async def run(self, start: int) -> dict[str, Any]:
        """Returns the tasks found from `start` on, and where to continue; `next` is None at the end."""
        total = await self._total()
        most = min(REPLY_TASKS, MOST_TASKS)
        size, at = min(FIRST_TASKS, most), start
        began = now = perf_counter()
        while now - began < MOST_SECONDS and len(self._found) < MOST_FOUND and (total is None or at < total):
            tasks = await self._environment.task_range(self._split, at, at + size)
            searched = await self._search(tasks, at)
            at += searched
            if searched == len(tasks) < size:
                return self._answer(None, at)
            before, now = now, perf_counter()
            if now - before < MOST_SECONDS / 8:
                size = min(size * 2, most)
        return self._answer(None if total is not None and at >= total else at, total)

    def _answer(self, following: int | None, total: int | None) -> dict[str, Any]:
        return {"tasks": self._found, "next": following, "total": total}

    async def _total(self) -> int | None:
        try:
            return await self._environment.num_tasks(self._split)
        except BadRequest:
            return None  # not counted; a wrong split is refused with the first range

    async def _search(self, tasks: Sequence[Any], start: int) -> int:
        """Searches tasks until enough are found; returns how many were searched."""
        shown = tasks if self._private else self._environment.without_private(tasks)
        turn = perf_counter() + TURN_SECONDS
        for number, task in enumerate(shown):
            if self._wanted in dumps(task).decode().casefold():
                self._found.append({"index": start + number, "task": task})
            if perf_counter() > turn:
                await asyncio.sleep(0)
                turn = perf_counter() + TURN_SECONDS
            if len(self._found) == MOST_FOUND:
                return number + 1
        return len(tasks)
