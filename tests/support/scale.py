"""How much tests try: a part in `make test`, all of it in `make attack`."""

import os

LONG = bool(os.environ.get("ORS_ATTACK"))


def scaled(short: int, long: int) -> int:
    """So many in `make test`, or in `make attack`."""
    return long if LONG else short
