"""Environments, for programs and the inspector: descriptions, and tasks, short and by search."""

import asyncio
from collections.abc import Mapping, Sequence
from email.utils import getaddresses
from importlib.metadata import Distribution
from itertools import islice
from time import perf_counter
from typing import Any

from ors._authoring.declared import described as described_parameters
from ors._identity import package_of
from ors._json import dumps
from ors.errors import BadRequest, ORSError
from ors.server.episodes.environments import ServedEnvironment
from ors.server.sessions.admission import Keys
from ors.types import Split

LICENCES = "License :: "


def listed(environment: ServedEnvironment) -> dict[str, Any]:
    """What is known at once."""
    return {
        "name": environment.name,
        "description": environment.description,
        "splits": environment.splits,
        "tools": environment.tools.tools,
        "task_tools": environment.task_tools,
        "terminal_tool": environment.tools.terminal_tool,
        "required_secrets": environment.required_secrets,
        "reward_range": environment.rewards.range,
        "reward_components": environment.rewards.components,
    }


async def described(environment: ServedEnvironment, *, counts: bool) -> dict[str, Any]:
    """All of it. Counting tasks may take long: with `counts` unset, no number of tasks is given."""
    splits = [_split(environment, each, counts) for each in environment.splits]
    read, *counted = await asyncio.gather(environment.in_thread(_read, environment), *splits)
    return {**listed(environment), "splits": counted, **read}


def _read(environment: ServedEnvironment) -> dict[str, Any]:
    package, parameters = package_of(environment.cls), described_parameters(environment.cls)
    return {
        "version": environment.identity.version,
        "hash": environment.identity.hash,
        "license": None if package is None else _licence(package),
        "authors": [] if package is None else _authors(package),
        "needs": _needs(environment.cls),
        **({} if parameters is None else {"parameters": parameters}),
    }


async def _split(environment: ServedEnvironment, split: Split, counts: bool) -> dict[str, Any]:
    found: dict[str, Any] = split.model_dump()
    if counts:
        try:
            found["num_tasks"] = await environment.num_tasks(split.name)
        except ORSError:  # the rest is still true
            found["num_tasks"] = None
    return found


def _licence(package: Distribution) -> str | None:
    """The licence in the metadata of a package: its expression, else its first line, else its classifier."""
    told = package.metadata
    texts = [*told.get_all("License-Expression", []), *told.get_all("License", [])]
    texts += [each.rpartition(" :: ")[2] for each in told.get_all("Classifier", []) if LICENCES in each]
    return next((line for text in texts for line in text.splitlines()[:1]), None)


def _authors(package: Distribution) -> list[str]:
    told = package.metadata
    emails = [name or address for name, address in getaddresses(told.get_all("Author-email", []))]
    return list(dict.fromkeys([*told.get_all("Author", []), *emails]))


def _needs(cls: Any) -> dict[str, Any]:
    """What an episode needs; without a sandbox, the rest is not known."""
    from ors.sandbox import SandboxSpec  # late: most servers have no sandbox

    given = getattr(cls, "sandbox", None)
    spec = getattr(given, "spec", given)  # that of a pool
    if not isinstance(spec, SandboxSpec):
        return {"sandbox": False, "network": None, "memory": None}
    return {"sandbox": True, "network": spec.network == "host", "memory": spec.memory}


# ── Tasks on the page ─────────────────────────────────────────────────────────────────────────────

MOST_FOUND = 25
MOST_SECONDS = 0.1
"""After this, the answer says where the next request goes on."""
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
    until, at = perf_counter() + MOST_SECONDS, start
    while perf_counter() < until and len(found) < MOST_FOUND and (total is None or at < total):
        tasks = await environment.task_range(split, at, at + AT_ONCE)
        shown = tasks if private else environment.without_private(tasks)
        more = await environment.in_thread(_matching, shown, at, wanted, MOST_FOUND - len(found))
        found += more
        at = more[-1]["index"] + 1 if len(found) == MOST_FOUND else at + len(tasks)
        if len(tasks) < AT_ONCE and len(found) < MOST_FOUND:
            total = at
    return {"tasks": found, "next": None if total is not None and at >= total else at, "total": total}


def _matching(tasks: Sequence[Any], first: int, text: str, most: int) -> list[dict[str, Any]]:
    found = (each for each in enumerate(tasks, first) if text in dumps(each[1]).decode().casefold())
    return [{"index": index, "task": task} for index, task in islice(found, most)]


async def _total(environment: ServedEnvironment, split: str) -> int | None:
    try:
        return await environment.num_tasks(split)
    except BadRequest:
        return None  # not counted; a wrong split is refused with the first range
