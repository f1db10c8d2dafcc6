"""Programs that the owner of a session starts in its sandbox, and whose connections the owner answers."""

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from pydantic import BaseModel

from ors._protocol import PING_COMMENT, STDERR, STDIN, STDOUT
from ors.errors import BadRequest, NotFound
from ors.server.http.answers import STREAM, Answer, answer
from ors.server.http.requests import Request
from ors.server.http.streams import Later, Outcome, Sink, Stream, event
from ors.server.sessions.registry import Sessions

if TYPE_CHECKING:
    from ors.sandbox import Process, Sandbox
    from ors.sandbox.egress import Egress


class Program(BaseModel):
    """A program to start: its words and variables, and files to write first."""

    command: list[str]
    env: dict[str, str] = {}
    files: dict[str, str] = {}


class Programs:
    def __init__(self, sessions: Sessions, ping_seconds: float, tasks: set[asyncio.Task[None]]) -> None:
        self._sessions, self._ping_seconds, self._tasks = sessions, ping_seconds, tasks

    def start(self, request: Request) -> Outcome:
        """Starts a program; streams what it prints and sends, and at last its exit status."""
        return Later(request, self._started(request), self._tasks)

    async def pass_on(self, request: Request) -> Answer:
        """Passes bytes on to a program, to its standard input or a connection; none are the end."""
        _, egress = await self._sandbox(request)
        if isinstance(egress.relay, ProgramStream):
            await egress.relay.pass_on(request.number("to", STDIN), request.body)
        return answer({})

    async def _sandbox(self, request: Request) -> "tuple[Sandbox, Egress]":
        from ors.sandbox import Sandbox  # most servers have no sandbox

        now = asyncio.get_running_loop().time()
        session = self._sessions.find(request.session_id(), now, request.key)
        box = (await session.ready()).sandbox
        if not isinstance(box, Sandbox) or not box.spec.agents or box.cell.egress is None:
            raise NotFound("This session has no sandbox that takes agents: SandboxSpec(agents=True)")
        return box, box.cell.egress

    async def _started(self, request: Request) -> Outcome:
        given, (box, egress) = request.model(Program), await self._sandbox(request)
        for path, text in given.files.items():
            await box.write_file(path, text.encode())
        try:
            process = await box.spawn(given.command, env=given.env)
        except ValueError as wrong:
            raise BadRequest(str(wrong)) from None
        if egress.relay is not None:
            process.kill()
            raise BadRequest("A program of this session's owner is running already")
        egress.relay = stream = ProgramStream(process, egress, self._ping_seconds)
        return stream


class ProgramStream(Stream):
    """A running program: what it prints, what it sends on each of its connections, and its end."""

    def __init__(self, process: "Process", egress: "Egress", ping_seconds: float) -> None:
        self._sink: Sink | None = None
        self._flows = asyncio.Event()
        self._process, self._egress, self._ping_seconds = process, egress, ping_seconds
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._last = STDERR
        self.task = asyncio.create_task(self._run())
        self.task.add_done_callback(self._over)

    async def _run(self) -> None:
        process = self._process
        reading = self._pump(STDOUT, process.read), self._pump(STDERR, process.read_stderr)
        working = asyncio.gather(*reading, return_exceptions=True)
        while not working.done():
            await asyncio.wait([working], timeout=self._ping_seconds)
            self._tell(PING_COMMENT)
        status = None if process.ended.exception() else await process.wait()
        self._tell(event("exit", -9 if status is None else status))

    def _over(self, task: asyncio.Task[None]) -> None:
        self._process.kill()
        self._flows.set()
        self._egress.relay = None
        for writer in self._writers.values():
            writer.close()
        if self._sink is not None:
            self._sink.end(b"")
        self._sink = None

    async def connected(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._last = number = self._last + 1
        self._writers[number] = writer
        try:
            self._send(number, head)
            await self._pump(number, reader.read)
        finally:
            del self._writers[number]
            self._send(number, b"")

    async def _pump(self, number: int, read: Callable[[int], Awaitable[bytes]]) -> None:
        await self._flows.wait()
        while data := await read(2**16):
            self._send(number, data)
            await self._flows.wait()

    def _send(self, number: int, data: bytes) -> None:
        self._tell(event("data", [number, b64encode(data).decode()]))

    def _tell(self, part: bytes) -> None:
        if self._sink is not None:
            self._sink.part(part)

    async def pass_on(self, number: int, data: bytes) -> None:
        writer = self._writers.get(number)
        if number == STDIN:
            await self._process.write(data, end=not data)
        elif writer is not None and data:
            with suppress(OSError):
                writer.write(data)
                await writer.drain()
        elif writer is not None:
            writer.close()

    def begin(self, sink: Sink) -> None:
        self._sink = sink
        sink.head(200, STREAM)
        self._flows.set()

    def pause(self) -> None:
        self._flows.clear()

    def resume(self) -> None:
        self._flows.set()

    def leave(self) -> None:
        """Kills the program: nobody waits for it."""
        self._sink = None
        self.task.cancel()
