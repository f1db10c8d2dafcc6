"""Opens sandboxes: chooses a backend, starts the agent, waits until it answers."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from ors.errors import SandboxDead, SandboxLimit, SandboxUnavailable
from ors.sandbox.backends import Launched, Trouble, Unisolated
from ors.sandbox.bwrap import Bwrap
from ors.sandbox.containers import Containers
from ors.sandbox.egress import Egress
from ors.sandbox.images import rooted
from ors.sandbox.inside import agent, framed
from ors.sandbox.process import AgentChannel
from ors.sandbox.spec import Allow, SandboxSpec

START_SECONDS = 30.0
LONGEST_COMPLAINT = 4096


SandboxBackend = Bwrap | Containers | Unisolated
"""A way to make a sandbox: `missing` tells what this machine lacks, as far as a look tells, `launch` starts
the agent with two descriptors as its streams, and `explain` says what the output of a failed start means."""
BACKENDS: tuple[SandboxBackend, ...] = (Bwrap(), Containers("podman"), Containers("docker"), Unisolated())


class Cell:
    """The outer side of one sandbox: its first process, its connection, its end."""

    def __init__(self, spec: SandboxSpec, launched: Launched, channel: AgentChannel) -> None:
        self.spec = spec
        """As it was opened: an image has become a folder."""
        self.launched = launched
        self.channel = channel
        self.pid = launched.process.pid
        self._by_host, self._limit = False, ""
        self._oom_kills = 0
        self.egress: Egress | None = None
        """The proxy, if there is a way out."""
        self.gone = asyncio.ensure_future(self._reap())

    async def _reap(self) -> None:
        """Waits for the first process, which ends after all others, and takes its groups away."""
        process, loop = self.launched.process, asyncio.get_running_loop()
        ended = asyncio.Event()
        watch = os.pidfd_open(process.pid)
        loop.add_reader(watch, ended.set)
        try:
            await ended.wait()
        except asyncio.CancelledError:  # the loop ends, and nobody has closed this sandbox
            self.kill()
            process.wait()
            self.channel.end(self._fate)
            self.launched.ended()
            raise
        finally:
            loop.remove_reader(watch)
            os.close(watch)
            self.channel.close()
            if self.egress is not None:
                self.egress.close()
        if process.wait() >= 0 and not (self._by_host or self._limit):
            group = self.launched.cgroup
            self._limit = "memory" if group is not None and group.oom_kills() else "killed"
        self.channel.end(self._fate)
        await asyncio.to_thread(self.launched.ended)

    async def end(self, patience: float = 2.0) -> None:
        self._by_host = self._by_host or not self._limit
        self.channel.close()
        await asyncio.wait([self.gone], timeout=patience)
        if not self.gone.done():
            self.kill()
        await asyncio.shield(self.gone)

    def _fate(self) -> SandboxDead | SandboxLimit:
        """The host's doing, or that of a program inside, which can end the agent, but nothing outside."""
        if not self._limit:
            return SandboxDead("the sandbox has ended")
        return SandboxLimit(f"a program has ended the sandbox; limit: {self._limit}", reason=self._limit)

    @property
    def stopped(self) -> bool:
        unreaped = self.launched.process.returncode is None
        return unreaped and ") T " in Path(f"/proc/{self.pid}/stat").read_text()

    def oom_kills(self) -> int:
        """Counts the processes that the kernel has killed for their memory since the last time."""
        group = self.launched.cgroup
        if group is None or self.gone.done():
            return 0
        before, self._oom_kills = self._oom_kills, max(self._oom_kills, group.oom_kills())
        return self._oom_kills - before

    def kill(self, limit: str = "") -> None:
        """Kills the sandbox by force; `limit` is the one that its programs have hit."""
        self._limit, self._by_host = limit, self._by_host or not limit
        if self.launched.process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
        self.launched.kill()


async def start(
    spec: SandboxSpec, among: Sequence[SandboxBackend] | None = None
) -> tuple[SandboxBackend, Cell]:
    """Starts a sandbox on the backend that the spec names, or on the first that isolates."""
    troubles: dict[str, Trouble] = {}
    for backend in BACKENDS if among is None else among:
        if spec.backend != backend.name and not (spec.backend == "auto" and backend.isolates):
            continue
        outcome = await _outcome(backend, spec)
        if isinstance(outcome, Cell):
            return backend, outcome
        troubles[backend.name] = outcome
    lines = [f"  {name}: {trouble.why}. What helps: {trouble.mend}" for name, trouble in troubles.items()]
    raise SandboxUnavailable("\n".join(["no sandbox can be opened here:", *lines]))


async def _outcome(backend: SandboxBackend, spec: SandboxSpec) -> Cell | Trouble:
    trouble = backend.missing(spec)
    if trouble is None and spec.image is not None and backend.name == "bwrap":
        try:
            spec = await rooted(spec)
        except SandboxUnavailable as error:
            return Trouble(str(error), "--image NAME=PATH says where an image is")
        trouble = backend.missing(spec)
    return trouble or await started(backend, spec)


async def started(backend: SandboxBackend, spec: SandboxSpec) -> Cell | Trouble:
    ours, theirs = socket.socketpair()
    complaints, their_complaints = os.pipe()
    try:
        launched = backend.launch(spec, theirs.fileno(), their_complaints)
    except OSError as error:
        ours.close()
        os.close(complaints)
        return backend.explain(spec, str(error))
    finally:
        theirs.close()
        os.close(their_complaints)
    channel = AgentChannel()
    cell = Cell(spec, launched, channel)
    joining = asyncio.ensure_future(asyncio.to_thread(_trouble, launched.join))
    try:
        ours.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: channel, sock=ours)
        if await _answers(cell) and not await asyncio.shield(joining) and await _opened(cell, spec):
            return cell
        await cell.end()
        return backend.explain(spec, _complaint(complaints) or await asyncio.shield(joining))
    except BaseException:
        ours.close()
        await cell.end(patience=0)
        raise
    finally:
        if not joining.done():  # waiting here could be cancelled, and would lose the cell
            await asyncio.wait([joining])
        launched.started()
        if launched.way_out is not None:
            launched.way_out.close()
        os.close(complaints)


def _trouble(join: Callable[[], None]) -> str:
    try:
        join()
    except OSError as error:
        return f"the sandbox cannot join its control groups: {error}"
    return ""


async def _answers(cell: Cell) -> bool:
    ready: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    cell.channel.expect(lambda kind, _: None if ready.done() else ready.set_result(kind == b"R"), 0)
    cell.channel.send_raw(agent() + framed(dict(cell.launched.settings)))
    done, _ = await asyncio.wait([ready], timeout=START_SECONDS)
    cell.channel.forget(0)
    return bool(done) and ready.result()


async def _opened(cell: Cell, spec: SandboxSpec) -> bool:
    """Opens the way out, if there is to be one; says whether that was possible."""
    if cell.launched.way_out is not None:
        cell.egress = Egress(spec.network if isinstance(spec.network, Allow) else Allow())
        try:
            await cell.egress.open(cell.launched.way_out)
        except OSError:
            return False
    return True


def _complaint(source: int) -> str:
    os.set_blocking(source, False)
    with suppress(BlockingIOError):
        return " ".join(os.read(source, LONGEST_COMPLAINT).decode(errors="replace").split())
    return ""
