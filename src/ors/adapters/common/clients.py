"""Clients that adapters share, where a trainer makes an object for every rollout."""

import asyncio
from functools import lru_cache

from ors.client import AsyncORS


def shared_client(base_url: str) -> AsyncORS:
    """The client of the running event loop for a server."""
    return _client(base_url, asyncio.get_running_loop())


@lru_cache
def _client(base_url: str, loop: asyncio.AbstractEventLoop) -> AsyncORS:
    return AsyncORS(base_url)
