"""Clients of adapters, and secrets for their environments."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Iterable
from functools import lru_cache

from ors.client import ORS, AsyncORS, Options

OPTIONS = Options(keep_messages=False, idle_seconds=120)
"""Episodes have messages of their own: sessions need not keep them too, about 1.5 kB a call."""


def shared_client(base_url: str) -> AsyncORS:
    """The client of the running event loop for a server: trainers make an object for every rollout."""
    return _client(base_url, asyncio.get_running_loop())


@lru_cache
def _client(base_url: str, loop: asyncio.AbstractEventLoop) -> AsyncORS:
    exit_on_sigterm()
    return AsyncORS(base_url, options=OPTIONS)


@lru_cache
def shared_sync_client(base_url: str) -> ORS:
    """The client of this process for a server, for sync code."""
    exit_on_sigterm()
    return ORS(base_url, options=OPTIONS)


def exit_on_sigterm() -> None:
    """Makes SIGTERM end this process as `exit` does, so that sessions are closed; others' handlers stay."""
    on_main = threading.current_thread() is threading.main_thread()
    if on_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


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
