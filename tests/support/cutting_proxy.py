"""Proxies for tests: one that forwards requests as HTTP proxies do, one that cuts connections."""

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextmanager
def listening(serve: Serve) -> Iterator[str]:
    """Runs `serve` for every connection, on a loop in a thread of its own; gives the URL."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    starting = asyncio.start_server(serve, "127.0.0.1", 0, backlog=1000)
    server = asyncio.run_coroutine_threadsafe(starting, loop).result(20)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"http://{host}:{port}"
    finally:
        asyncio.run_coroutine_threadsafe(ended(server), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()


async def ended(server: asyncio.Server) -> None:
    server.close()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0)  # aborted transports let go of their sockets in the next turn


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int | None = None) -> None:
    """Copies bytes until there are no more, or `limit` of them have passed."""
    while chunk := await reader.read(65536):
        writer.write(chunk if limit is None else chunk[:limit])
        await writer.drain()
        if limit is not None:
            limit -= len(chunk)
            if limit <= 0:
                return


async def both_ways(
    client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    limits: tuple[int | None, int | None] = (None, None),
) -> None:
    """Copies in both directions; when one ends, so does the other."""
    there = asyncio.create_task(pump(client[0], server[1], limits[0]))
    back = asyncio.create_task(pump(server[0], client[1], limits[1]))
    try:
        await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for writer in (client[1], server[1]):
            writer.transport.abort()
        for task in (there, back):
            task.cancel()
        await asyncio.gather(there, back, return_exceptions=True)


@dataclass
class Cutting:
    """Forwards to a server, and cuts a share of the connections after a random number of bytes."""

    target: str
    share: float = 1 / 3
    most: int = 3000
    dice: random.Random = field(default_factory=lambda: random.Random(7))
    connections: int = 0
    cut: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parts = urlsplit(self.target)
        self.connections += 1
        limits: tuple[int | None, int | None] = (None, None)
        if self.dice.random() < self.share:
            self.cut += 1
            there, back = self.dice.randrange(self.most), self.dice.randrange(self.most)
            limits = (there, None) if self.dice.random() < 0.5 else (None, back)
        try:
            server = await asyncio.open_connection(parts.hostname, parts.port)
        except OSError:
            writer.transport.abort()
            return
        await both_ways((reader, writer), server, limits)


async def http_proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Forwards the requests of one connection, which name their server in full."""
    head = await reader.readuntil(b"\r\n\r\n")
    method, target, rest = head.split(b" ", 2)
    parts = urlsplit(target.decode())
    assert parts.hostname, "a proxy is asked with the whole URL"
    server = await asyncio.open_connection(parts.hostname, parts.port)
    path = target.decode().split(parts.netloc, 1)[1].encode()
    # One request a connection, so that every head is rewritten.
    rest = rest.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
    server[1].write(method + b" " + path + b" " + rest)
    await both_ways((reader, writer), server)
