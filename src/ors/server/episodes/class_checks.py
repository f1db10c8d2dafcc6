"""Checks the class of an author: all methods are there, and take what the server passes."""

import inspect

from ors._authoring.parameters import described, validated
from ors.environment import Environment
from ors.errors import InvalidEnvironment

_CLASS_METHODS = (
    "get_task",
    "get_task_range",
    "list_splits",
    "list_tasks",
    "list_tools",
    "name",
    "num_tasks",
)
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


def check_class(cls: type[Environment]) -> None:
    """Checks that a class has all methods of an environment, and that the server can call them.

    Raises:
        InvalidEnvironment: it does not; the message names the method.
    """
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
