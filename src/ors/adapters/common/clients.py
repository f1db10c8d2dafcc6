"""Clients of adapters."""

import asyncio
from functools import lru_cache

from ors.client import ORS, AsyncORS, Options

OPTIONS = Options(keep_messages=False)
"""Episodes have messages of their own: sessions need not keep them too, about 1.5 kB a call."""


def shared_client(base_url: str) -> AsyncORS:
    """The client of the running event loop for a server: trainers make an object for every rollout."""
    return _client(base_url, asyncio.get_running_loop())


@lru_cache
def _client(base_url: str, loop: asyncio.AbstractEventLoop) -> AsyncORS:
    return AsyncORS(base_url, options=OPTIONS)


@lru_cache
def shared_sync_client(base_url: str) -> ORS:
    """The client of this process for a server, for sync code."""
    return ORS(base_url, options=OPTIONS)
