"""A plugin of pytest: runs `async def` tests of environments where no other plugin does."""

import asyncio
import inspect
import sys

import pytest


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a test in an event loop of its own; True if it was run."""
    test = pyfuncitem.obj
    # Async plugins come first, or have made the test a plain function. Packages that never import ors.testing
    # are left alone.
    if "ors.testing" not in sys.modules or not inspect.iscoroutinefunction(test):
        return None
    names = inspect.signature(test).parameters
    asyncio.run(test(**{name: value for name, value in pyfuncitem.funcargs.items() if name in names}))
    return True
