"""A proxy for tests: it opens tunnels and forwards requests, and remembers what it was asked."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tests.support.cutting_proxy import both_ways, pump
from tests.support.scripted_server import accepting

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Proxy:
    """Answers CONNECT with `answer`; `heads` are those of the requests that it saw."""

    url: str = ""
    answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n"
    heads: list[str] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await self._head(reader)
        method, target, _ = head.split(" ", 2)
        if method != "CONNECT":
            await self._forward((reader, writer), head)
            return
        writer.write(self.answer)
        if b" 200 " in self.answer:
            await both_ways((reader, writer), await self._server(target))
        else:
            writer.close()

    async def _head(self, reader: asyncio.StreamReader) -> str:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        self.heads.append(head)
        return head

    async def _server(self, netloc: str) -> Streams:
        # The names of the tests are all on this machine.
        return await asyncio.open_connection("127.0.0.1", int(netloc.rpartition(":")[2]))

    async def _forward(self, client: Streams, head: str) -> None:
        """Forwards requests without bodies, each of which must name the server."""
        parts = urlsplit(head.split(" ")[1])
        server = await self._server(parts.netloc)
        back = asyncio.create_task(pump(server[0], client[1]))
        try:
            while True:
                server[1].write(head.replace(f"{parts.scheme}://{parts.netloc}", "", 1).encode("latin-1"))
                head = await self._head(client[0])
        finally:
            back.cancel()
            for writer in (client[1], server[1]):
                writer.transport.abort()


@asynccontextmanager
async def proxying(tls: ssl.SSLContext | None = None) -> AsyncIterator[Proxy]:
    """A proxy on a free port."""
    made = Proxy()
    async with accepting(made.serve, tls) as port:
        made.url = f"{'https' if tls else 'http'}://localhost:{port}"
        yield made
