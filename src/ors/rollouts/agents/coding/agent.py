"""CodingAgent: the program of a coding agent plays episodes over MCP."""

import asyncio
import os
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ors._masking import hidden
from ors.client.sessions.program import SessionProgram
from ors.errors import NotFound, ORSError
from ors.models import SHORTEST_KEY, address
from ors.providers import MODEL_NAMES, api_of
from ors.providers.base import Prices
from ors.providers.errors import ModelError, failure
from ors.providers.messages import AgentMessage, SystemMessage
from ors.rollouts.agents.coding.seat import MCPListener, ModelDoor, Seat, prompt_of
from ors.rollouts.agents.coding.table import CODING, JSON, Said, understood, written
from ors.rollouts.episodes.episode import Conversation
from ors.sandbox import Process, SandboxSpec
from ors.sandbox.backends import Unisolated
from ors.sandbox.box import open_box
from ors.sandbox.spec import HOME, PROXY_PORT
from ors.types import ToolSpec, described

FAREWELL_SECONDS = 30.0
"""How long a program may still run when its episode is over: it reports its tokens at its end."""
READ_BYTES = 4 * 2**20
"""Of a program's output and of its errors, the end. Tokens are counted all over it."""
KEPT_CHARACTERS = 16_000
"""Of both, in the record."""
NOT_FOUND = 127
PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ")
"""Variables of ours that a program gets. Others may be secrets."""


class AgentFailed(Exception):
    """The program of an agent failed."""


class CodingAgent:
    """A coding agent: a program of its own for each episode. Close it after use.

    Calls and rewards are recorded on our side of MCP: the program's own transcript is not the episode's.

    Raises:
        ValueError: its program is not installed, or it needs a key.
    """

    def __init__(
        self,
        name: str,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        prices: Prices | None = None,
    ) -> None:
        self._row = row = CODING[name]
        if shutil.which(row.command) is None:
            how = f"To install it: npm install -g {row.package}"
            raise ValueError(f"{name} needs the program {row.command!r}, which is not on the PATH. {how}")
        self._name, self._model, self._prices = name, model, prices
        self._api = api_of(MODEL_NAMES[row.provider])
        url, key = address(name, self._api, base_url, api_key)
        self._secrets = [key] if len(key) >= SHORTEST_KEY else []
        self._door = ModelDoor(url, key or "EMPTY")
        self._listener = MCPListener(self._door)
        self._seats: dict[int, Seat] = {}

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AgentMessage:
        """The next call of the program that plays this conversation, or its last words."""
        return await self._seats[id(conversation)].reply(conversation, tools)

    @asynccontextmanager
    async def joining(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AsyncIterator[None]:
        """Runs the program while an episode is played, and a little longer; keeps what it said."""
        seat = self._seats[id(conversation)] = Seat()
        try:
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(seat.joining(conversation, tools))
                path = stack.enter_context(self._listener.address(seat))
                started = await self._inside(conversation, path) or await self._here(stack, path)
                program = _Program(started)
                watching = asyncio.ensure_future(self._watch(program, seat, _task(conversation)))
                try:
                    yield
                    seat.close()
                    await asyncio.wait([watching], timeout=FAREWELL_SECONDS)
                finally:
                    watching.cancel()
                    seat.close()
                    self._keep(program, await program.end(), seat, conversation)
        finally:
            del self._seats[id(conversation)]

    async def close(self) -> None:
        await self._listener.close()
        await self._door.close()

    async def _inside(self, conversation: Conversation, path: str) -> SessionProgram | None:
        """Starts the program in the sandbox of the episode, if it takes agents."""
        if conversation.session is None:
            return None
        given = self._given(self._row.inside, HOME, f"http://127.0.0.1:{PROXY_PORT}", path)
        try:
            return await SessionProgram.start(conversation.session, given, self._listener.port)
        except NotFound:
            return None

    async def _here(self, stack: AsyncExitStack, path: str) -> Process:
        # In a sandbox that isolates nothing, since it ends all that was started in it, also without us.
        opening = open_box(SandboxSpec(backend="none"), among=[Unisolated(warns=False)])
        box = await stack.enter_async_context(await opening)
        home = str(Path(box.work).with_name("home") / "agent")
        given = self._given(self._row.alone, home, self._listener.url, path)
        for file, text in given["files"].items():
            await box.write_file(file, text.encode())
        env = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        return await box.spawn(given["command"], env={**env, "TMPDIR": home, **given["env"]})

    def _given(self, more: tuple[Sequence[str], JSON], home: str, here: str, path: str) -> dict[str, Any]:
        """The program's words, variables, and settings; `here` is our address as it sees it."""
        row, (arguments, settings), base_url = self._row, more, here + self._door.path
        words = {"model": self._model, "base_url": base_url, "url": here + path, "home": home}
        text = written(row.settings | settings | row.server, row.file, **words)
        env = {"HOME": home, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", **row.variables}
        env |= {self._api.url_variable: base_url, self._api.key_variables[-1]: self._door.token}
        command = [row.command, *(each.format(**words) for each in (*row.arguments, *arguments))]
        return {"command": command, "env": env, "files": {f"{HOME}/{row.file}": text}}

    async def _watch(self, program: "_Program", seat: Seat, task: str) -> None:
        """Gives the program its task, and waits for its end, which is the agent's last move."""
        try:
            await program.process.write(task.encode(errors="replace"), end=True)
            await program.process.wait()
            seat.leave(self._last_words(program, await program.end()))
        except Exception as error:
            seat.leave(error)

    def _last_words(self, program: "_Program", status: int) -> AgentMessage:
        said = self._said(program)
        if said.error is not None:
            words = re.search(r"\b[45]\d\d\b", said.error)  # some tell the status in words only
            found = said.status or (int(words[0]) if words else None)
            if found is None:
                raise ModelError(f"{self._name}: {self._hidden(said.error)}")
            raise failure(found, said.error.encode(), f"the model of {self._name}", self._hidden)
        if status != 0:
            line = self._printed(program.errors).rpartition("\n")[2] or "it printed no error"
            how = f"exited with {status}" if status > 0 else f"was ended by signal {-status}"
            if status == NOT_FOUND and isinstance(program.process, SessionProgram):
                line += "; the sandbox of the episode must have the program, on its PATH"
            raise AgentFailed(f"{self._name} {how}: {line}")
        return AgentMessage(said.text, stop="stop" if said.text else "empty", usage=said.usage)

    def _keep(self, program: "_Program", status: int, seat: Seat, conversation: Conversation) -> None:
        printed = {"output": self._printed(program.output), "errors": self._printed(program.errors)}
        conversation.program = {"exit": status, **printed}
        if not seat.left:
            said = self._said(program)
            conversation.messages.append(AgentMessage("" if said.error else said.text, usage=said.usage))

    def _said(self, program: "_Program") -> Said:
        said = understood(self._row, program.output.decode(errors="replace"))
        if self._prices is not None and not said.usage.unknown:
            said = replace(said, usage=replace(said.usage, cost=self._prices.cost(said.usage)))
        return replace(said, text=self._hidden(said.text))

    def _printed(self, printed: bytearray) -> str:
        return self._hidden(printed.decode(errors="replace").strip()[-KEPT_CHARACTERS:])

    def _hidden(self, text: str) -> str:
        return hidden(text, self._secrets)


class _Program:
    """A running program, and the end of what it has printed."""

    def __init__(self, process: Process | SessionProgram) -> None:
        self.process, self.output, self.errors = process, bytearray(), bytearray()
        reading = _read(process.read, self.output), _read(process.read_stderr, self.errors)
        self._reading = [asyncio.ensure_future(each) for each in reading]

    async def end(self) -> int:
        """Kills it, if it still runs; returns its exit status, negative for a signal."""
        self.process.kill()
        status = None
        with suppress(ORSError):  # the connection to the server has broken
            status = await self.process.wait()
        await asyncio.wait(self._reading)
        return -9 if status is None else status


async def _read(read: Callable[[], Awaitable[bytes]], printed: bytearray) -> None:
    while data := await read():
        printed += data
        del printed[:-READ_BYTES]


def _task(conversation: Conversation) -> str:
    system = [each.text for each in conversation.messages if isinstance(each, SystemMessage)]
    return "\n\n".join([*system, described(prompt_of(conversation))])
