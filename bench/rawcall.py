"""Calls by hand, for clients that misbehave: they cut, stop reading, or vanish."""

import asyncio
import os
import socket
import struct

import aiohttp

from ors._protocol import CALL, CREATE, IDEMPOTENCY_KEY, PING, SESSION_ID, CallReader

_AT_ONCE = struct.pack("ii", 1, 0)


async def opened(http: aiohttp.ClientSession, url: str) -> str:
    """A new session that nobody keeps alive."""
    sid = os.urandom(16).hex()
    body = {"env_name": "rough", "task_spec": {}}
    async with http.post(url + CREATE.path(), json=body, headers={SESSION_ID: sid}) as answer:
        answer.raise_for_status()
    return sid


class RawCall:
    """One call. Sent again, it is the same call: its key says so."""

    def __init__(
        self, http: aiohttp.ClientSession, url: str, sid: str, name: str, given: dict[str, object]
    ) -> None:
        self._http = http
        self._url = url + CALL.path("rough")
        self._ping_url = url + PING.path()
        self._body = {"name": name, "input": given}
        self._headers = {SESSION_ID: sid, IDEMPOTENCY_KEY: os.urandom(16).hex()}

    async def begun_and_cut(self) -> None:
        """Begins it, and breaks the connection once its id is here."""
        response = await self._begin()
        _cut(response)

    async def begun_and_left_unread(self, seconds: float) -> bool:
        """Begins it and reads no more; says whether the server gave up on this reader meanwhile."""
        response = await self._begin()
        until = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < until:
            await asyncio.sleep(1)
            await self._ping()  # the session is alive; only this reader has stopped
        try:
            while await response.content.readany():
                pass
        except (aiohttp.ClientError, OSError):
            return True
        finally:
            _cut(response)
        return False

    async def outcome(self) -> CallReader:
        """Reads it to its end, from the beginning."""
        reader = CallReader()
        async with self._http.post(self._url, json=self._body, headers=self._headers) as response:
            response.raise_for_status()
            async for part in response.content.iter_any():
                reader.feed(part)
        return reader

    async def _ping(self) -> None:
        async with self._http.post(self._ping_url, headers=self._headers) as answer:
            answer.raise_for_status()

    async def _begin(self) -> aiohttp.ClientResponse:
        response = await self._http.post(self._url, json=self._body, headers=self._headers)
        response.raise_for_status()
        await response.content.readuntil(b"\n\n")
        return response


def _cut(response: aiohttp.ClientResponse) -> None:
    # With a reset, as a crash does, not with a polite end.
    connection = response.connection
    if connection is not None and connection.transport is not None:
        wire = connection.transport.get_extra_info("socket")
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        connection.transport.abort()
    response.close()
