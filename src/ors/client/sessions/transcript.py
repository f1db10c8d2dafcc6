"""Transcript: the prompt, calls and results of one session."""

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from ors._json import loads
from ors.client.requests.decode import tool_output
from ors.errors import ToolCallError, ToolFailed
from ors.providers import Provider
from ors.providers.base import Messages
from ors.providers.convert import convert_prompt, convert_reply, convert_results
from ors.providers.messages import ToolInvocation
from ors.types import Blocks, TextBlock, ToolOutput

SHORT_CHARS = 4096

Kept = tuple[int, str, str | None, str | None, bytes | str | ToolOutput]
"""A call with a result: its turn, its request, its id, what was said to a `@terminal` tool, and the result.

Texts in a plain tuple, unless the result is long: the garbage collector visits other objects again and again.
"""


class Transcript:
    """The prompt, calls and results of one session."""

    __slots__ = ("_calls", "_turn", "prompt", "running")

    def __init__(self) -> None:
        self.prompt: Blocks | None = None
        self._calls: list[Kept | int] = []  # those without a result as their turns
        self._turn = 0
        self.running = 0
        """Calls that have begun and not ended."""

    def copy(self) -> "Transcript":
        """A transcript of its own that begins with the calls that have ended."""
        made = Transcript()
        made.prompt, made._turn = self.prompt, self._turn
        made._calls = [kept for kept in self._calls if isinstance(kept, tuple)]
        return made

    def begin(self) -> int:
        """Begins a call; returns its number."""
        # A call that starts while another runs cannot be an answer to its result.
        self._turn += not self.running
        self.running += 1
        self._calls.append(self._turn)
        return len(self._calls)

    def read(
        self, number: int, body: bytes, id: str | None, said: str | None, result: bytes | str
    ) -> ToolOutput:
        """Keeps a call and its result, and reads the result. Raises as `tool_output` does.

        `body` is its request, `said` the message that a `@terminal` tool gets.
        """
        turn = self._calls[number - 1]
        assert isinstance(turn, int)
        # Decoded, since orjson leaves 4 KB reserved behind its bytes.
        self._calls[number - 1] = turn, (asked := body.decode()), id, said, result
        output = tool_output(result)
        if len(result) > SHORT_CHARS:
            self._calls[number - 1] = turn, asked, id, said, output
        return output

    def messages(self, format: Provider) -> Messages:
        """The prompt, and each call that has a result, as `format` expects them."""
        made = convert_prompt(self.prompt or [], format)
        for _, turn in groupby(self._ended(), lambda ended: ended.turn):
            ended = list(turn)
            spoken = [each for each in ended if each.said is not None]
            results = [(each.call, each.output) for each in ended if each.said is None]
            said = "\n".join(each.said or "" for each in spoken)
            made += convert_reply(said, [call for call, _ in results], format)
            made += convert_results(results, format)
            for each in spoken:
                if isinstance(each.output, ToolCallError):
                    made += convert_prompt([TextBlock(text=str(each.output))], format)
        return made

    def _ended(self) -> Iterator["_Ended"]:
        for number, kept in enumerate(self._calls, 1):
            if isinstance(kept, int):
                continue
            turn, body, id, said, result = kept
            asked = loads(body)
            call = ToolInvocation(asked["name"], asked["input"], id or f"call_{number}")
            try:
                output = result if isinstance(result, ToolOutput) else tool_output(result)
                yield _Ended(turn, said, call, output)
            except ToolCallError as refusal:
                yield _Ended(turn, said, call, refusal)
            except ToolFailed:  # the result was not valid
                continue


class _Ended(NamedTuple):
    """A call that has a result."""

    turn: int
    said: str | None
    call: ToolInvocation
    output: ToolOutput | ToolCallError
