"""Short forms of tasks, for lists of sessions and episodes."""

from collections.abc import Mapping
from itertools import islice
from typing import Any

from ors.server.episodes.environments import ServedEnvironment
from ors.server.sessions.api_keys import Keys

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
