"""Deep copies of environments and toolsets."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any


class Copier:
    """Copies objects that refer to each other. `known` has copies that exist already, by id of the first."""

    def __init__(self, known: Mapping[int, Any]) -> None:
        self._known = known
        self._memo = dict(known)

    def copy(self, thing: Any) -> Any:
        """A deep copy.

        Raises:
            TypeError: an attribute cannot be copied; the message names it.
        """
        try:
            return deepcopy(thing, self._memo)
        except Exception as error:
            text = f"{self._culprit(thing)} cannot be copied ({error}): define fork() in the class"
            raise TypeError(text) from error

    def _culprit(self, thing: Any) -> str:
        owner = type(thing).__name__
        for name, value in getattr(thing, "__dict__", {}).items():
            try:
                # Not with the memo, which holds parts of what could not be copied.
                deepcopy(value, {**self._known, id(thing): thing})
            except Exception:
                return f"{owner}.{name}"
        return owner
