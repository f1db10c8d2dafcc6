"""SessionProgram: a program in the sandbox of a session, whose connections are continued here."""

import asyncio
from base64 import b64decode
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from ors._json import dumps, loads
from ors._protocol import EVENT_STREAM, PROGRAM, PROGRAM_DATA, STDERR, STDIN, STDOUT, EventDecoder
from ors.client.requests.retry import failure
from ors.client.requests.server import RemoteServer, read_body
from ors.client.transports.base import Broken, Response
from ors.errors import ORSError

if TYPE_CHECKING:
    from ors.client.sessions.session import AsyncSession


class SessionProgram:
    """A running program. Each connection that it makes to its loopback is continued to a port of ours."""

    def __init__(
        self, remote: RemoteServer, headers: Mapping[str, str], response: Response, port: int
    ) -> None:
        self._remote, self._headers, self._response, self._port = remote, headers, response, port
        self._printed = {STDOUT: asyncio.StreamReader(), STDERR: asyncio.StreamReader()}
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._ended = asyncio.create_task(self._read())
        self._ended.add_done_callback(self._over)

    @classmethod
    async def start(cls, session: "AsyncSession", given: Mapping[str, Any], port: int) -> Self:
        """Starts a program. Raises NotFound if the session has no sandbox for it."""
        headers, remote = await session._opened_headers(), session._remote
        asking = {**headers, "Accept": EVENT_STREAM}
        response = await remote.send(PROGRAM.method, PROGRAM.path(), asking, dumps(given))
        if response.status != 200:
            text = await read_body(response, remote.options.answer_bytes)
            raise failure(response.status, response.headers, text)
        return cls(remote, headers, response, port)

    async def read(self) -> bytes:
        """The next bytes of standard output; b"" at the end."""
        return await self._printed[STDOUT].read(2**16)

    async def read_stderr(self) -> bytes:
        """The next bytes of standard error; b"" at the end."""
        return await self._printed[STDERR].read(2**16)

    async def write(self, data: bytes, *, end: bool) -> None:
        """Writes to standard input."""
        if data:
            await self._send(STDIN, data)
        if end:
            await self._send(STDIN, b"")

    def kill(self) -> None:
        """Kills it: the server does, once nobody reads on."""
        self._ended.cancel()

    async def wait(self) -> int | None:
        """Waits for the end; returns the exit status, or None after `kill`. Raises Broken: it is unknown."""
        await asyncio.wait([self._ended])
        return None if self._ended.cancelled() else self._ended.result()

    async def _read(self) -> int | None:
        decoder = EventDecoder()
        async for chunk in self._response.body:
            for event in decoder.feed(chunk):
                if event.event == "exit":
                    return int(event.data)
                number, data = loads(event.data)
                await self._take(number, b64decode(data))
        raise Broken("the stream of a program has ended before the program")

    def _over(self, ended: asyncio.Task[int | None]) -> None:
        self._response.close()
        for stream in self._printed.values():
            stream.feed_eof()
        for task in self._answering:
            task.cancel()
        for writer in self._writers.values():
            writer.close()

    async def _take(self, number: int, data: bytes) -> None:
        if number in self._printed:
            self._printed[number].feed_data(data)
            return
        if data and number not in self._writers:
            reader, self._writers[number] = await asyncio.open_connection("127.0.0.1", self._port)
            self._answering.add(task := asyncio.create_task(self._answer(number, reader)))
            task.add_done_callback(self._answering.discard)
        with suppress(OSError):
            if data:
                self._writers[number].write(data)
                await self._writers[number].drain()
            elif number in self._writers:
                self._writers.pop(number).close()

    async def _answer(self, number: int, reader: asyncio.StreamReader) -> None:
        with suppress(ORSError, OSError):  # one of both ends has gone
            while data := await reader.read(2**16):
                await self._send(number, data)
            await self._send(number, b"")

    async def _send(self, number: int, data: bytes) -> None:
        path = f"{PROGRAM_DATA.path()}?to={number}"
        await self._remote.exchange(PROGRAM_DATA.method, path, self._headers, data)
