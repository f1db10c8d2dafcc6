"""Transcript: the prompt, calls and results of one session."""

from collections.abc import Awaitable
from itertools import groupby
from typing import Any

from ors._json import dumps, loads
from ors.client.requests.decode import tool_output
from ors.errors import ToolCallError
from ors.providers import Provider
from ors.providers.base import Messages
from ors.providers.convert import convert_prompt, convert_reply, convert_results
from ors.providers.messages import ToolInvocation
from ors.types import Blocks, JSONObject, TextBlock, ToolOutput

SHORT_CHARS = 4096


class Transcript:
    """The prompt, calls and results of one session."""

    __slots__ = ("_calls", "_running", "_turn", "prompt")

    def __init__(self) -> None:
        self.prompt: Blocks | None = None
        self._calls: list[_Kept] = []
        self._running = 0
        self._turn = 0

    def copy(self) -> "Transcript":
        """A transcript of its own that begins with the calls that have ended."""
        made = Transcript()
        made.prompt, made._turn = self.prompt, self._turn
        made._calls = [kept for kept in self._calls if kept.result is not None]
        return made

    async def keep(
        self,
        name: str,
        given: JSONObject,
        id: str | None,
        said: str | None,
        call: Awaitable[ToolOutput],
    ) -> ToolOutput:
        """Awaits a call; keeps it and its result. `said` is the message that a `@terminal` tool gets."""
        # A call that starts while another runs cannot be an answer to its result.
        self._turn += not self._running
        kept = _Kept(name, dict(given), id or f"call_{len(self._calls) + 1}", said, self._turn)
        self._calls.append(kept)
        self._running += 1
        try:
            output = await call
            block = output.blocks[0] if len(output.blocks) == 1 and output.metadata is None else None
            is_short = type(block) is TextBlock and len(block.text) <= SHORT_CHARS
            # As bytes: the garbage collector would visit the seven objects of an output again and again.
            kept.result = dumps(output) if is_short else output
        except ToolCallError as refusal:
            # A new one, since the traceback of the first would keep its frames alive.
            kept.result = ToolCallError(str(refusal), reason=refusal.reason)
            raise
        finally:
            self._running -= 1
        return output

    def messages(self, format: Provider) -> Messages:
        """The prompt, and each call that has a result, as `format` expects them."""
        made = convert_prompt(self.prompt or [], format)
        ended = [kept for kept in self._calls if kept.result is not None]
        for _, turn in groupby(ended, lambda kept: kept.turn):
            kept = list(turn)
            spoken = [each for each in kept if each.said is not None]
            results = [(each.call(), each.output()) for each in kept if each.said is None]
            made += convert_reply(
                "\n".join(each.said or "" for each in spoken), [call for call, _ in results], format
            )
            made += convert_results(results, format)
            for each in spoken:
                if isinstance(each.result, ToolCallError):
                    made += convert_prompt([TextBlock(text=str(each.result))], format)
        return made


class _Kept:
    """One call, and its result once there is one."""

    __slots__ = ("given", "id", "name", "result", "said", "turn")

    def __init__(self, name: str, given: dict[str, Any], id: str, said: str | None, turn: int) -> None:
        self.name = name
        self.given = given
        self.id = id
        self.said = said
        self.turn = turn
        self.result: ToolOutput | ToolCallError | bytes | None = None
        """A short output is kept as JSON."""

    def output(self) -> ToolOutput | ToolCallError:
        assert self.result is not None
        if isinstance(self.result, bytes):
            return tool_output({"ok": True, "output": loads(self.result)})
        return self.result

    def call(self) -> ToolInvocation:
        return ToolInvocation(self.name, self.given, self.id)
