"""Secrets of environments, for adapters that are set up by files: their values are never in those."""

import os
from collections.abc import Iterable


def secrets_from(names: Iterable[str]) -> dict[str, str]:
    """The secrets of these names, from the variables of the process: NAME, or NAME in capitals.

    Raises:
        ValueError: a variable is not set.
    """
    found = {name: os.environ.get(name) or os.environ.get(name.upper()) for name in names}
    missing = [name for name, value in found.items() if not value]
    if missing:
        raise ValueError(f"The secret {missing[0]} is missing: set the variable {missing[0].upper()}")
    return {name: value for name, value in found.items() if value}
