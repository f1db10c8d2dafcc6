"""What the agent in a sandbox is asked for: programs, files and snapshots; and the connection to it."""

import asyncio
import errno
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO, cast

from ors.errors import SandboxDead, SandboxLimit
from ors.sandbox.inside import framed
from ors.sandbox.inside.archive import reader
from ors.sandbox.inside.child import REPORT
from ors.sandbox.spec import ExecResult

HEAD = 9
LARGEST = 2**20
"""Largest answer. The agent sends no larger one; a program that has taken its place might."""

Answer = Callable[[bytes, bytes], None]
"""Takes the kind and the content of an answer; kind b"" is the end of the sandbox."""


class AgentChannel(asyncio.Protocol):
    """Sends requests, and passes each answer to whoever waits for that id."""

    def __init__(self) -> None:
        self._waiting: dict[int, Answer] = {}
        self._last = 0
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self.fate: Callable[[], SandboxDead | SandboxLimit] | None = None
        """Makes the error of every request after the end."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class

    def expect(self, take: Answer, number: int | None = None) -> int:
        """Reserves an id for a request; `take` gets its answers."""
        if self.fate is not None:
            raise self.fate()
        if number is None:
            number = self._last = self._last + 1
        self._waiting[number] = take
        return number

    def forget(self, number: int) -> None:
        self._waiting.pop(number, None)

    def send(self, *request: object) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(framed(request))

    def send_raw(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        """Called by asyncio. The bytes come from inside the sandbox: nothing of them is believed."""
        self._buffer += data
        while len(self._buffer) >= HEAD:
            size = int.from_bytes(self._buffer[5:HEAD], "big")
            if size > LARGEST:
                self.close()
                return
            if len(self._buffer) < HEAD + size:
                return
            number, kind = int.from_bytes(self._buffer[:4], "big"), bytes(self._buffer[4:5])
            content = bytes(self._buffer[HEAD : HEAD + size])
            del self._buffer[: HEAD + size]
            try:
                if take := self._waiting.get(number):
                    take(kind, content)
            except ValueError:  # an answer that the agent does not give
                self.close()
                return

    def end(self, fate: Callable[[], SandboxDead | SandboxLimit]) -> None:
        """Tells all who wait, or ask later, that the sandbox has ended."""
        self.fate = fate
        waiting, self._waiting = self._waiting, {}
        for take in waiting.values():
            take(b"", b"")

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


PIECE = 1 << 16
UNTAKEN = 1 << 19
"""Input on its way to a program; more follows when the program has taken some of it."""


def encoded(argv: Sequence[str] | str, env: Mapping[str, str]) -> tuple[list[bytes], dict[bytes, bytes]]:
    words = [os.fsencode(word) for word in (["/bin/sh", "-c", argv] if isinstance(argv, str) else argv)]
    variables = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
    if not words or any(b"\0" in word for word in (*words, *variables, *variables.values())):
        raise ValueError("a command needs a program, and no word of it may contain a zero byte")
    return words, variables


class Process:
    """A program that runs in a sandbox. Its output must be read: it waits when 1 MB is unread."""

    def __init__(self, channel: AgentChannel, *, keep: bool = False) -> None:
        self._channel = channel
        self._kept = {b"O": bytearray(), b"E": bytearray()} if keep else {}
        self._streams = {} if keep else {kind: asyncio.StreamReader() for kind in (b"O", b"E", REPORT)}
        self.limit: str | None = None
        """The limit that ended it, such as "memory"; None while it runs."""
        self._untold = 0
        self._untaken = 0
        self._moved = asyncio.Event()
        self.ended: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()
        self.ended.add_done_callback(lambda future: future.cancelled() or future.exception())
        self.started = time.monotonic()
        self.number = channel.expect(self._answer)

    def _answer(self, kind: bytes, data: bytes) -> None:
        if kind in self._streams:
            self._streams[kind].feed_data(data)
        elif kind in self._kept:
            self._kept[kind] += data
            self._told(len(data))
        elif kind == b"A":
            self._accept(int(data))
        elif kind == b"X":
            status, _, limit = data.partition(b" ")
            self.limit = limit.decode() if limit and limit != b"kill" else None
            self._end((int(status), limit.decode()))
        elif kind == b"F":
            self._end(SandboxLimit("the sandbox has too many processes", reason="processes"))
        elif kind == b"" and self._channel.fate is not None:
            fate = self._channel.fate()
            self.limit = fate.reason if isinstance(fate, SandboxLimit) else None
            self._end((-9, self.limit) if self.limit else fate)
        else:
            raise ValueError("not an answer of the agent")

    def _end(self, outcome: tuple[int, str] | Exception) -> None:
        self._channel.forget(self.number)
        for stream in self._streams.values():
            stream.feed_eof()
        if isinstance(outcome, Exception):
            self.ended.set_exception(outcome)
        else:
            self.ended.set_result(outcome)
        self._accept(self._untaken)

    def _accept(self, size: int) -> None:
        self._untaken -= size
        self._moved.set()

    async def read(self, size: int = PIECE) -> bytes:
        """The next bytes of standard output; b"" at the end."""
        return await self._read(b"O", size)

    async def read_stderr(self, size: int = PIECE) -> bytes:
        """The next bytes of standard error; b"" at the end."""
        return await self._read(b"E", size)

    async def read_report(self, size: int = PIECE) -> bytes:
        """The next bytes of descriptor 3, after all that was printed before them; b"" at the end."""
        return await self._read(REPORT, size)

    async def _read(self, kind: bytes, size: int) -> bytes:
        data = await self._streams[kind].read(size)
        self._told(len(data))
        return data

    def _told(self, size: int) -> None:
        # In large steps: each message wakes the agent.
        self._untold += size
        if self._untold >= PIECE:
            self._channel.send("taken", self.number, self._untold)
            self._untold = 0

    async def write(self, data: bytes, *, end: bool = False) -> None:
        """Writes to standard input, and returns when the program's pipe has taken it."""
        await self.write_all((data[at : at + PIECE] for at in range(0, len(data), PIECE)), end=end)

    async def write_all(self, pieces: Iterable[bytes], *, end: bool = False) -> None:
        """Writes many pieces, and waits for the program only now and then."""
        for piece in pieces:
            await self._taken_up_to(UNTAKEN)
            self.expect_taken(len(piece))
            self._channel.send("stdin", self.number, piece, False)
        if end:
            self._channel.send("stdin", self.number, b"", True)
        await self._taken_up_to(0)

    def expect_taken(self, size: int) -> None:
        self._untaken += size

    async def _taken_up_to(self, rest: int) -> None:
        while self._untaken > rest and not self.ended.done():
            self._moved.clear()
            await self._moved.wait()

    def kill(self, signal: int = 9) -> None:
        """Sends a signal to the program and its process group."""
        self._channel.send("kill", self.number, signal)

    async def wait(self) -> int | None:
        """Waits for the end; returns the exit status, or None when a limit or `kill` ended it."""
        await asyncio.shield(self.ended)
        return self._status()

    def _status(self) -> int | None:
        status, limit = self.ended.result()
        return None if status < 0 and (limit or self.limit) else status

    def result(self) -> ExecResult:
        """How the program ended, with the output that was kept.

        Raises:
            SandboxDead: the host ended the sandbox first.
            SandboxLimit: the program could not be started.
        """
        limit, kept = self.ended.result()[1], self._kept
        return ExecResult(
            returncode=self._status(),
            stdout=bytes(kept.get(b"O", b"")),
            stderr=bytes(kept.get(b"E", b"")),
            timed_out=limit == "time",
            truncated=limit == "output",
            seconds=time.monotonic() - self.started,
            limit=self.limit,
        )


# ── Files ────────────────────────────────────────────────────────────────────────────────────────


class Snapshot:
    """The files of a sandbox at one moment, in a file of the host that has no name."""

    def __init__(self, most: int) -> None:
        self._file: BinaryIO = tempfile.TemporaryFile(prefix="ors-snapshot-")  # noqa: SIM115
        self._left = most
        self.size = 0
        """Bytes in the snapshot."""

    def add(self, data: bytes) -> None:
        """Takes the next bytes."""
        self._left -= len(data)
        if self._left < 0:
            raise SandboxLimit("the files are larger than the sandbox allows", reason="disk")
        self._file.write(data)
        self.size += len(data)

    def pieces(self) -> Iterator[bytes]:
        """The bytes of the snapshot. Several readers may take them at a time."""
        self._file.flush()
        for offset in range(0, self.size, PIECE):
            yield os.pread(self._file.fileno(), PIECE, offset)

    def reader(self) -> Callable[[int], bytes]:
        """Reads the snapshot from its start, exactly so many bytes at a time."""
        self._file.seek(0)
        return reader(self._file)

    def close(self) -> None:
        """Frees the space."""
        self._file.close()


def parts(start: str | Path, path: str | Path) -> tuple[str, str]:
    folder, name = os.path.split(os.path.normpath(os.path.join(start, path)))
    if not name:
        raise ValueError(f"{path} is not a file or folder that can be copied")
    return folder, name


async def asked(
    channel: AgentChannel, seconds: float, path: str, most: int, operation: str, *arguments: object
) -> bytes | None:
    """What the agent answers, at most `most` bytes; None if it does not answer in time."""
    if "\0" in path:
        raise ValueError("a path cannot contain a zero byte")
    answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    content = bytearray()

    def take(kind: bytes, data: bytes) -> None:
        content.extend(data if kind == b"D" else b"")
        if len(content) > most:
            raise ValueError("more than was asked for")
        if not answer.done() and kind == b"K":
            answer.set_result(bytes(content))
        elif not answer.done() and kind != b"D":
            fate = channel.fate
            answer.set_exception(failure(path, data) if kind or fate is None else fate())

    number = channel.expect(take)
    try:
        channel.send(operation, number, *arguments)
        done, _ = await asyncio.wait([answer], timeout=seconds)
    finally:
        channel.forget(number)
    return answer.result() if done else None


def failure(path: str, data: bytes) -> Exception:
    """The error that the agent tells of. Any is the agent's doing, and so a SandboxLimit."""
    code, _, text = data.decode(errors="replace").partition(" ")
    number = int(code)
    if number in (errno.EFBIG, errno.ENOSPC):
        return SandboxLimit(f"{path}: {text}", reason="file" if number == errno.EFBIG else "disk")
    kind = type(OSError(number, text))
    made = {"reason": "file", "__reduce__": lambda error: (kind, (number, text, path))}
    error: OSError = type(kind.__name__, (kind, SandboxLimit), made)(number, text, path)
    return error


@asynccontextmanager
async def copying(path: str, seconds: float) -> AsyncIterator[None]:
    """Bounds the time of a copy, which programs can slow down."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise SandboxLimit(f"{path}: copying the files takes too long", reason="time") from None


async def copied(process: Process, path: str) -> None:
    status, limit = await asyncio.shield(process.ended)
    if status == 0:
        return
    told = await process.read_stderr()
    if told and not limit:
        raise failure(path, told)
    reason = limit if limit in ("memory", "killed") else "disk"
    raise SandboxLimit(f"{path}: the files do not fit into the sandbox", reason=reason)
