"""Secrets of environments, for adapters that are set up by files: their values are never in those."""

import os
from collections.abc import Iterable


def secrets_from(names: Iterable[str]) -> dict[str, str]:
    """The secrets of these names, from the variables of the process: NAME, or NAME in capitals.

    Raises:
        ValueError: a variable is not set.
    """
    found = {}
    for name in names:
        value = os.environ.get(name) or os.environ.get(name.upper())
        if not value:
            raise ValueError(f"The secret {name} is missing: set the variable {name.upper()}")
        found[name] = value
    return found
