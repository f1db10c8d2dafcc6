"""CodingAgent: the program of a coding agent plays episodes over MCP."""

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from ors._masking import MASK, hidden
from ors.models.endpoint import SHORTEST_KEY
from ors.models.model import address
from ors.providers import MODEL_NAMES, api_of
from ors.providers.base import Prices
from ors.providers.errors import ModelError, failure
from ors.providers.messages import AgentMessage, SystemMessage
from ors.rollouts.agents.coding.program import Program
from ors.rollouts.agents.coding.seat import MCPListener, Seat, prompt_of
from ors.rollouts.agents.coding.table import CODING, Said, understood, written
from ors.rollouts.episodes.episode import Conversation
from ors.types import ToolSpec, described

FAREWELL_SECONDS = 30.0
"""How long a program may still run when its episode is over: it reports its tokens at its end."""
KEPT_CHARACTERS = 16_000
"""Of a program's output and of its errors, in the record."""


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
        """Runs the program while an episode is played, and a little longer; keeps what it said.

        Raises:
            AgentFailed: it cannot be started.
        """
        seat = self._seats[id(conversation)] = Seat()
        system = [each.text for each in conversation.messages if isinstance(each, SystemMessage)]
        task = "\n\n".join([*system, described(prompt_of(conversation))])
        try:
            with TemporaryDirectory(prefix="ors-agent-", ignore_cleanup_errors=True) as folder:
                program = Program(Path(folder), task)
                async with seat.joining(conversation, tools), self._listener.address(seat) as url:
                    await self._start(program, Path(folder), url)
                    watching = asyncio.ensure_future(self._watch(program, seat))
                    try:
                        yield
                        seat.close()
                        await asyncio.wait([watching], timeout=FAREWELL_SECONDS)
                    finally:
                        watching.cancel()
                        seat.close()
                        self._keep(program, await program.kill(), seat, conversation)
        finally:
            del self._seats[id(conversation)]

    async def close(self) -> None:
        await self._listener.close()

    async def _start(self, program: Program, home: Path, url: str) -> None:
        row, file = self._row, home / self._row.file
        words = {"model": self._model, "base_url": self._base_url, "url": url, "home": str(home)}
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(written(row.settings | row.server, row.file, **words), encoding="utf-8")
        model = {self._api.url_variable: self._base_url, self._api.key_variables[-1]: self._key or "EMPTY"}
        try:
            command = [row.command, *(each.format(**words) for each in row.arguments)]
            await program.start(command, {**row.variables, **model})
        except OSError as error:
            why = f"{row.command}: {error.strerror or error}"
            raise AgentFailed(f"{self._name} cannot be started: {why}") from None

    async def _watch(self, program: Program, seat: Seat) -> None:
        """Waits for the end of the program, which is the agent's last move."""
        await program.wait()
        status = await program.kill()  # with what it has left behind
        try:
            seat.leave(self._last_words(program, status))
        except Exception as error:
            seat.leave(error)

    def _last_words(self, program: Program, status: int) -> AgentMessage:
        said = self._said(program)
        if said.error is not None:
            words = re.search(r"\b[45]\d\d\b", said.error)  # some tell the status in words only
            found = said.status or (int(words[0]) if words else None)
            if found is None:
                raise ModelError(f"{self._name}: {self._hidden(said.error)}")
            raise failure(found, said.error.encode(), f"the model of {self._name}", self._hidden)
        if status != 0:
            line = self._printed(program, "errors").rpartition("\n")[2] or "it printed no error"
            how = f"exited with {status}" if status > 0 else f"was ended by signal {-status}"
            raise AgentFailed(f"{self._name} {how}: {line}")
        return AgentMessage(said.text, stop="stop" if said.text else "empty", usage=said.usage)

    def _keep(self, program: Program, status: int, seat: Seat, conversation: Conversation) -> None:
        printed = {name: self._printed(program, name) for name in ("output", "errors")}
        conversation.program = {"exit": status, **printed}
        if not seat.left:
            said = self._said(program)
            conversation.messages.append(AgentMessage("" if said.error else said.text, usage=said.usage))

    def _said(self, program: Program) -> Said:
        said = understood(self._row, program.printed("output"))
        if self._prices is not None and not said.usage.unknown:
            said = replace(said, usage=replace(said.usage, cost=self._prices.cost(said.usage)))
        return replace(said, text=self._hidden(said.text))

    def _printed(self, program: Program, stream: str) -> str:
        # The key goes before the text is cut, which could cut it in two.
        text = program.printed(stream).replace(self._secret or MASK, MASK).strip()
        return self._hidden(text[-KEPT_CHARACTERS:])

    def _hidden(self, text: str) -> str:
        return hidden(text, [self._secret]) if self._secret else text
