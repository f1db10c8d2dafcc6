"""Ways to an MCP server: the standard streams of a program, and streamable HTTP."""

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from typing import Any, Self
from urllib.parse import urlsplit

from ors._json import dumps, loads
from ors._protocol import EventDecoder
from ors.errors import SandboxDead, SandboxLimit, TransportError
from ors.sandbox import Process, Sandbox, SandboxSpec
from ors.sandbox.backends import Unisolated
from ors.sandbox.box import open_box

LARGEST = 64 * 2**20
"""Longest message of a server, in bytes."""
END_SECONDS = 2.0
"""How long a server may take to end by itself."""
LAST_LINES = 10
INHERITED = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER")
"""Variables that a program gets from the server: the keys of other services stay there."""
IN_FOLDER = ("sh", "-c", 'cd "$0" && exec "$@"')

Message = dict[str, Any]
Incoming = AsyncGenerator[Message, None]


class Stdio:
    """Lines on the standard streams of a program, in a sandbox or beside the server."""

    def __init__(self, program: Process, box: Sandbox | None) -> None:
        self._program, self._box = program, box
        self._unread, self._stderr = bytearray(), bytearray()
        self._draining = asyncio.create_task(self._drain())
        self._writing = asyncio.create_task(program.write(b""))

    @classmethod
    async def start(cls, command: Sequence[str], env: Mapping[str, str], box: Sandbox | None) -> Self:
        if box is not None:
            return cls(await box.spawn(command, env=env), None)
        # In a sandbox that isolates nothing, since it ends all that was started in it, also without us.
        # The server does not count it: its observer is in our context.
        opening = open_box(SandboxSpec(backend="none"), among=[Unisolated(warns=False)])
        box = await asyncio.create_task(opening, context=Context())
        kept = {name: os.environ[name] for name in INHERITED if name in os.environ}
        try:
            return cls(await box.spawn([*IN_FOLDER, os.getcwd(), *command], env={**kept, **env}), box)
        except BaseException:
            await box.close()
            raise

    async def _drain(self) -> None:
        while data := await self._program.read_stderr():
            self._stderr += data
            del self._stderr[:-4096]

    async def exchange(self, message: Message, headers: Mapping[str, str]) -> Incoming:
        """Sends a message, and gives those that come, if it is a request."""
        await asyncio.wait({self._writing})  # a cancelled call goes on with it: half a line is never sent
        self._writing = asyncio.create_task(self._program.write(dumps(message) + b"\n"))
        while "method" in message and "id" in message and (line := await self._line()):
            if line.strip():
                yield parsed(line)

    async def _line(self) -> bytes:
        seen = 0
        while (end := self._unread.find(b"\n", seen)) < 0:
            seen = checked_size(self._unread)
            if not (data := await self._program.read()):
                return b""
            self._unread += data
        line = bytes(self._unread[: end + 1])
        del self._unread[: end + 1]
        return line

    async def last_words(self) -> str:
        """How the program has ended, and the end of its standard error."""
        ended = ""
        with suppress(TimeoutError, SandboxDead, SandboxLimit):
            async with asyncio.timeout(END_SECONDS / 2):
                ended = f" (status {await self._program.wait()})"
                await asyncio.wait({self._draining})
        lines = self._stderr.decode(errors="replace").strip().splitlines()[-LAST_LINES:]
        return ended + "\n".join(["; the end of its stderr:", *lines] if lines else [])

    async def close(self) -> None:
        """Closes the program's input, and kills what is left of it soon after."""
        try:
            with suppress(Exception):
                async with asyncio.timeout(END_SECONDS):
                    await self._program.write(b"", end=True)
                    await self._program.wait()
        finally:
            self._program.kill()
            for task in (self._draining, self._writing):
                task.cancel()
            if self._box is not None:
                await self._box.close()


class HTTP:
    """Streamable HTTP, whose answers are JSON or events."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        from ors.client import Options, http_transport  # late: few environments need it

        parts = urlsplit(url)
        # Servers close idle connections, most after five seconds; no request may meet that.
        self._transport = http_transport(f"{parts.scheme}://{parts.netloc}", Options(keepalive_seconds=2.0))
        self._path = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
        self._headers = {"Accept": "application/json, text/event-stream", **headers}
        self._session: dict[str, str] = {}

    async def exchange(self, message: Message, headers: Mapping[str, str]) -> Incoming:
        """Sends a message, and gives those of its answer."""
        told = {"Content-Type": "application/json", **self._headers, **self._session, **headers}
        response = await self._transport.send("POST", self._path, told, dumps(message))
        try:
            kind, ok = response.headers.get("content-type", "").partition(";")[0], response.status == 200
            if session := response.headers.get("mcp-session-id"):
                self._session = {"Mcp-Session-Id": session}
            decoder, unread = EventDecoder(), bytearray()
            async for chunk in response.body:
                unread += chunk
                for event in decoder.feed(chunk) if ok and kind == "text/event-stream" else ():
                    unread.clear()
                    if event.data:
                        yield parsed(event.data.encode())
                checked_size(unread)
            if kind == "application/json" and unread and not (response.status == 404 and self._session):
                yield parsed(unread) | ({} if ok else {"id": message.get("id")})
            elif response.status not in (200, 202, 204):
                raise ValueError(f"answered with status {response.status}: {bytes(unread[:200])!r}")
        finally:
            if not response.ended:
                response.close()

    async def last_words(self) -> str:
        return ""

    async def close(self) -> None:
        """Ends the session at the server, if it has one."""
        if self._session:
            with suppress(TransportError, TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    headers = {**self._headers, **self._session}
                    (await self._transport.send("DELETE", self._path, headers, None)).close()
        await self._transport.close()


def checked_size(data: bytearray) -> int:
    if len(data) > LARGEST:
        raise ValueError(f"sent a message of over {LARGEST >> 20} MiB")
    return len(data)


def parsed(data: bytes | bytearray) -> Message:
    try:
        value = loads(bytes(data))
    except ValueError:
        value = None
    if not isinstance(value, dict) or value.get("jsonrpc") != "2.0":
        raise ValueError(f"sent something that is not MCP: {data[:200].decode(errors='replace')!r}")
    return value
