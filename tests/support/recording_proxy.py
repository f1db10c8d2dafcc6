"""A proxy that keeps every byte which a server sends to its clients."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from tests.support.cutting_proxy import listening, pump


@contextmanager
def recording(url: str) -> Iterator[tuple[str, bytearray]]:
    """Forwards all connections to the server at `url`; gives its own URL, and what the server has sent."""
    sent, target = bytearray(), urlsplit(url)

    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65536):
            sent.extend(chunk)
            writer.write(chunk)
            await writer.drain()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(target.hostname, target.port)
        ways = {asyncio.create_task(pump(reader, there[1])), asyncio.create_task(keep(there[0], writer))}
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            writer.close()
            there[1].close()

    with listening(serve) as own:
        yield own, sent
