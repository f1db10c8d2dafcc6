"""Waiting for what nobody announces, such as the end of another process: the one place that polls."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

PATIENCE = 45.0
"""Seconds, fewer than a test has: it fails with a message instead of a time-out."""
PAUSE = 0.01


def wait_until(holds: Callable[[], object], what: str = "") -> None:
    """Returns when `holds()` is true.

    Raises:
        AssertionError: it never is; the message has `what`, or the condition as it is written in the test.
    """
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, _in_vain(holds, what)
        time.sleep(PAUSE)


async def until(holds: Callable[[], object | Awaitable[object]], what: str = "") -> None:
    """The same on an event loop, where `holds` may be async."""
    deadline = time.monotonic() + PATIENCE
    while not (await found if inspect.isawaitable(found := holds()) else found):
        assert time.monotonic() < deadline, _in_vain(holds, what)
        await asyncio.sleep(PAUSE)


def written(condition: Callable[[], object]) -> str:
    """A condition as it is written in its test."""
    return inspect.getsource(condition).strip() if inspect.isfunction(condition) else repr(condition)


def _in_vain(holds: Callable[[], object], what: str) -> str:
    return f"waited {PATIENCE:g} s in vain for: {what or written(holds)}"
