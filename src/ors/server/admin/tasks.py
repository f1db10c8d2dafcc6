"""Tasks on the page: short forms of them for lists, and a search for a text, a bounded part at a time."""

import asyncio
from collections.abc import Mapping
from itertools import islice
from time import perf_counter
from typing import Any

from ors._json import dumps
from ors.errors import BadRequest
from ors.server.episodes.environments import ServedEnvironment
from ors.server.sessions.admission import Keys

MOST_FOUND = 25
MOST_SECONDS = 0.1
"""After this, the answer says where the next request goes on."""
TURN_SECONDS = 0.001
"""How long the search keeps the event loop."""
AT_ONCE = 64
"""Tasks that the environment is asked for: few, since it may be slow to make them."""
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


async def search(
    environment: ServedEnvironment, split: str, text: str, start: int, *, private: bool
) -> dict[str, Any]:
    """The tasks from `start` on that contain a text, and where to continue; `next` is None at the end.

    Without `private`, private fields are not searched.
    """
    if len(text) > MOST_TEXT:
        raise BadRequest(f"text: expected at most {MOST_TEXT} characters")
    wanted = dumps(text)[1:-1].decode().casefold()  # escaped as in the JSON that is searched
    total = await _total(environment, split)
    found: list[dict[str, Any]] = []
    until, turn, at = perf_counter() + MOST_SECONDS, 0.0, start
    while perf_counter() < until and (total is None or at < total):
        tasks = await environment.task_range(split, at, at + AT_ONCE)
        for task in tasks if private else environment.without_private(tasks):
            if wanted in dumps(task).decode().casefold():
                found.append({"index": at, "task": task})
            at += 1
            if len(found) == MOST_FOUND:
                return {"tasks": found, "next": None if at == total else at, "total": total}
            if perf_counter() > turn:
                await asyncio.sleep(0)
                turn = perf_counter() + TURN_SECONDS
        if len(tasks) < AT_ONCE:
            total = at
    return {"tasks": found, "next": None if total is not None and at >= total else at, "total": total}


async def _total(environment: ServedEnvironment, split: str) -> int | None:
    try:
        return await environment.num_tasks(split)
    except BadRequest:
        return None  # not counted; a wrong split is refused with the first range
