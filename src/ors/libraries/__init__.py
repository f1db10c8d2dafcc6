"""Whole libraries as environments: `LIBRARY:NAME[,NAME…]`. Each has a module, imported when used."""

from contextlib import redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from importlib.util import find_spec
from io import StringIO
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings

from ors.errors import InvalidEnvironment

if TYPE_CHECKING:
    from ors.environment import Environment

__all__ = ["LIBRARIES", "library_environments", "library_of"]

LIBRARIES = {
    "gymnasium": "gymnasium",
    "harbor": "",
    "reasoning_gym": "reasoning-gym",
    "textarena": "textarena",
}
"""The libraries, each with the package that has it; task folders of Harbor need none."""


def library_of(target: str) -> str | None:
    """The library that a target such as `gymnasium:CartPole-v1` names; None if it names none."""
    library, colon, _ = target.partition(":")
    library = library.replace("-", "_")
    return library if colon and library in LIBRARIES else None


def library_environments(target: str) -> "list[type[Environment]]":
    """The environments of `LIBRARY:NAME[,NAME…]`; of `LIBRARY:` all that can be played on this machine.

    Raises:
        InvalidEnvironment: the library is not installed, or has no such environment.
    """
    library = library_of(target)
    if library is None:
        raise InvalidEnvironment(f"{target!r} names no library; libraries: {', '.join(LIBRARIES)}")
    if (package := LIBRARIES[library]) and find_spec(library) is None:
        raise InvalidEnvironment(f"{target} needs the package {package}: pip install {package}")
    module, _, names = import_module(f"ors.libraries.{library}"), *target.partition(":")[1:]
    if not names:
        return _playable(module)
    return [module.environment(name.strip()) for name in names.split(",")]


def _playable(module: Any) -> "list[type[Environment]]":
    found: list[type[Environment]] = []
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()), catch_warnings(action="ignore"):
        for name in module.names():
            with suppress(InvalidEnvironment):
                (made := module.environment(name)).list_splits()
                found.append(made)
    return found
