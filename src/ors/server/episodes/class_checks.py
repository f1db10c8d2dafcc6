"""Checks the class of an author: what its methods take, and what it declares."""

import asyncio
import inspect
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from ors._authoring.declared import described, validated
from ors._protocol import RESERVED_NAMES
from ors.environment import Environment
from ors.errors import InvalidEnvironment
from ors.limits import Limits
from ors.types import ListToolsOutput, Split

_TAKEN = {
    "list_splits": (),
    "list_tasks": ("split",),
    "num_tasks": ("split",),
    "get_task": ("split", "index"),
    "get_task_range": ("split", "start", "stop"),
    "setup": ("self",),
    "get_prompt": ("self",),
    "teardown": ("self",),
}
"""What the server passes to each method."""
_CLASS_METHODS = ("list_tools", "name", *(name for name, taken in _TAKEN.items() if "self" not in taken))


def check_class(cls: type[Environment]) -> None:
    """Raises InvalidEnvironment unless a class has all methods of one, and the server can call them."""
    validated(cls, {})  # raises if a parameter has no value
    described(cls)
    tools = cls._tools()  # first, since a tool may have the name of another method
    for name in _CLASS_METHODS:
        if not isinstance(inspect.getattr_static(cls, name), classmethod | staticmethod):
            raise InvalidEnvironment(f"{cls.__name__}.{name} must be a @classmethod")
    missing = sorted(cls.__abstractmethods__)
    if not any(overrides(cls, name) for name in ("list_tasks", "get_task")):
        missing.append("list_tasks (or num_tasks and get_task)")
    if not len(tools) and not tools.overridden:
        missing.append("a method with @tool")
    if missing:
        raise InvalidEnvironment(f"{cls.__name__} does not define {', '.join(missing)}")
    if cls.max_steps is not None and (type(cls.max_steps) is not int or cls.max_steps < 1):
        raise InvalidEnvironment(f"{cls.__name__}.max_steps must be a positive whole number or None")
    if not _takes(cls, task_spec={}, secrets={}):
        raise InvalidEnvironment(
            f"{cls.__name__}.__init__ must take task_spec and secrets, and pass them to super().__init__; "
            "or write setup() instead"
        )
    for name, taken in _TAKEN.items():
        if overrides(cls, name) and not _takes(getattr(cls, name), *taken):
            first = () if "self" in taken else ("cls",)
            wanted = ", ".join((*first, *taken))
            raise InvalidEnvironment(f"{cls.__name__}.{name} must be defined as {name}({wanted})")


def overrides(cls: type[Environment], name: str) -> bool:
    """Whether a class has a method of its own instead of the one of Environment."""
    return inspect.getattr_static(cls, name) is not inspect.getattr_static(Environment, name)


def _takes(function: object, *words: str, **named: object) -> bool:
    try:
        inspect.signature(function).bind(*words, **named)  # type: ignore[arg-type]
    except TypeError:
        return False
    except ValueError:  # without a signature, as some functions of C
        return True
    return True


# ── What a class declares ────────────────────────────────────────────────────────────────────────


OWN_LIMITS = (
    "idle_seconds",
    "life_seconds",
    "result_bytes",
    "sessions_per_environment",
    "setup_seconds",
    "teardown_seconds",
    "tool_seconds",
)


def own_limits(cls: type[Environment], limits: Limits) -> Limits:
    if not _are_limits(cls.limits):
        return limits
    unknown = sorted(set(cls.limits) - set(OWN_LIMITS))
    if unknown:
        raise InvalidEnvironment(
            f"{cls.__name__}.limits: unknown limit {unknown[0]!r}; valid limits: {', '.join(OWN_LIMITS)}"
        )
    return replace(limits, **cls.limits)  # type: ignore[arg-type]


def _are_limits(given: object) -> bool:
    """Whether a class attribute `limits` is meant for the server: one of the author's own has other keys."""
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        return False
    return any(get_close_matches(key, OWN_LIMITS, n=1, cutoff=0.75) for key in given)


def listed_names(cls: type[Environment], attribute: str) -> list[str]:
    """Names that an attribute lists; it may be a class method, which may be async."""
    given: Any = getattr(cls, attribute)
    names = _awaited(given()) if callable(given) else given
    listed = [] if isinstance(names, str) else list(names)
    if isinstance(names, str) or not all(isinstance(name, str) and name for name in listed):
        raise InvalidEnvironment(f"{cls.__name__}.{attribute} must be a list of names")
    return listed


def checked_name(cls: type[Environment]) -> str:
    name = cls.name()
    if not isinstance(name, str) or name.lower() in RESERVED_NAMES:
        raise InvalidEnvironment(f"{cls.__name__}: an environment cannot be named {name!r}; override name()")
    if not name.isprintable() or any(character in "/?#% " for character in name):
        raise InvalidEnvironment(f"{cls.__name__}: the name {name!r} cannot be part of a URL path")
    return name.lower()


def listed_tools(cls: type[Environment]) -> ListToolsOutput:
    listed = _awaited(cls.list_tools())
    if not isinstance(listed, ListToolsOutput):
        raise InvalidEnvironment(
            f"{cls.__name__}.list_tools must return ListToolsOutput, not {type(listed).__name__}"
        )
    return listed


def listed_splits(cls: type[Environment]) -> list[Split]:
    listed = _awaited(cls.list_splits())
    if not listed or not isinstance(listed, Iterable) or isinstance(listed, str):
        raise InvalidEnvironment(
            f"{cls.__name__}.list_splits must return at least one split, in a list such as ['train'], "
            f"not {listed!r}"
        )
    return [_split(cls, given) for given in listed]


def _split(cls: type[Environment], given: object) -> Split:
    if isinstance(given, Split):
        return given
    if given == "train" or given == "test":
        return Split(name=given, type=given)
    if isinstance(given, str):
        return Split(name=given, type="validation")
    raise InvalidEnvironment(f"{cls.__name__}.list_splits must return strings or Split, not {given!r}")


def _awaited(value: Any) -> Any:
    """The result of an author's classmethod, run in a thread, since a loop may be running here."""
    if not inspect.iscoroutine(value):
        return value
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, value).result()
