"""CodingAgent: the program of a coding agent plays episodes over MCP."""

import asyncio
import os
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from ors._masking import MASK, hidden
from ors.models import SHORTEST_KEY, address
from ors.providers import MODEL_NAMES, api_of
from ors.providers.base import Prices
from ors.providers.errors import ModelError, failure
from ors.providers.messages import AgentMessage, SystemMessage
from ors.rollouts.agents.coding.seat import MCPListener, Seat, prompt_of
from ors.rollouts.agents.coding.table import CODING, Said, understood, written
from ors.rollouts.episodes.episode import Conversation
from ors.sandbox import Process, Sandbox, SandboxSpec
from ors.sandbox.backends import Unisolated
from ors.sandbox.box import open_box
from ors.types import ToolSpec, described

FAREWELL_SECONDS = 30.0
"""How long a program may still run when its episode is over: it reports its tokens at its end."""
READ_BYTES = 4 * 2**20
"""Of a program's output and of its errors, the end. Tokens are counted all over it."""
KEPT_CHARACTERS = 16_000
"""Of both, in the record."""
PASSED_ON = (
    "PATH", "LANG", "LC_ALL", "TZ", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
)  # fmt: skip
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
        self._base_url, self._key = address(name, self._api, base_url, api_key)
        self._secret = self._key if len(self._key) >= SHORTEST_KEY else ""
        self._listener = MCPListener()
        self._seats: dict[int, Seat] = {}

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AgentMessage:
        """The next call of the program that plays this conversation, or its last words."""
        return await self._seats[id(conversation)].reply(conversation, tools)

    @asynccontextmanager
    async def joining(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AsyncIterator[None]:
        """Runs the program while an episode is played, and a little longer; keeps what it said."""
        seat = self._seats[id(conversation)] = Seat()
        # In a sandbox that isolates nothing, since it ends all that was started in it, also without us.
        opening = open_box(SandboxSpec(backend="none"), among=[Unisolated(warns=False)])
        try:
            async with await opening as box, seat.joining(conversation, tools):
                with self._listener.address(seat) as url:
                    program = _Program(await self._started(box, url))
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

    async def _started(self, box: Sandbox, url: str) -> Process:
        row, home = self._row, str(Path(box.work).with_name("home") / "agent")
        words = {"model": self._model, "base_url": self._base_url, "url": url, "home": home}
        settings = written(row.settings | row.server, row.file, **words)
        await box.write_file(f"/home/agent/{row.file}", settings.encode())
        env = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        env |= {"HOME": home, "TMPDIR": home, "NO_PROXY": "127.0.0.1", **row.variables}
        env |= {self._api.url_variable: self._base_url, self._api.key_variables[-1]: self._key or "EMPTY"}
        return await box.spawn([row.command, *(each.format(**words) for each in row.arguments)], env=env)

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
        # The key goes before the text is cut, which could cut it in two.
        text = printed.decode(errors="replace").replace(self._secret or MASK, MASK).strip()
        return self._hidden(text[-KEPT_CHARACTERS:])

    def _hidden(self, text: str) -> str:
        return hidden(text, [self._secret]) if self._secret else text


class _Program:
    """A running program, and the end of what it has printed."""

    def __init__(self, process: Process) -> None:
        self.process, self.output, self.errors = process, bytearray(), bytearray()
        reading = _read(process.read, self.output), _read(process.read_stderr, self.errors)
        self._reading = [asyncio.ensure_future(each) for each in reading]

    async def end(self) -> int:
        """Kills it, if it still runs; returns its exit status, negative for a signal."""
        self.process.kill()
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
