"""Runs the tests again that failed in a run, one after the other. `make coverage` asks whether they pass."""

import json
import sys
from pathlib import Path

import pytest


def failed(cache: Path) -> list[str]:
    """The tests that failed in the run with this cache. xdist adds `@group` to those that have a group."""
    kept = cache / "v" / "cache" / "lastfailed"
    names = json.loads(kept.read_text()) if kept.exists() else {}
    return [name.rpartition("@")[0] if name.rfind("@") > name.rfind("]") else name for name in names]


def main(cache: str) -> None:
    names = failed(Path(cache))
    if not names:
        sys.exit("The run has failed, and none of its tests: there is nothing to run again.")
    sys.exit(pytest.main(["-n", "0", *names]))


if __name__ == "__main__":
    main(*sys.argv[1:])
