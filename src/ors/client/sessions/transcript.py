"""Transcript: the prompt, calls and results of one session."""

from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

from ors._json import loads
from ors.client.requests.decode import tool_output
from ors.errors import ToolCallError, ToolFailed
from ors.providers import Provider
from ors.providers.base import Messages
from ors.providers.convert import convert_prompt, convert_reply, convert_results
from ors.providers.messages import ToolInvocation
from ors.types import Blocks, TextBlock, ToolOutput

SHORT_CHARS = 4096

_FIELDS = 5
"""Values of a call: its turn, its request, its id, what was said to a `@terminal` tool, and its result.

All calls are in one flat list, as texts unless a result is long. With an object for each, the garbage
collector stopped a client with 256 busy sessions for 10 ms after every 40,000 calls.
"""


class Transcript:
    __slots__ = ("_calls", "_turn", "prompt", "running")

    def __init__(self) -> None:
        self.prompt: Blocks | None = None
        self._calls: list[Any] = []  # `_FIELDS` values of each; without a result, that is None
        self._turn = 0
        self.running = 0
        """Calls that have begun and not ended."""

    def copy(self) -> "Transcript":
        """A transcript of its own that begins with the calls that have ended."""
        made = Transcript()
        made.prompt, made._turn = self.prompt, self._turn
        for kept in self._kept():
            if kept[-1] is not None:
                made._calls += kept
        return made

    def begin(self) -> int:
        """Begins a call; returns its place."""
        # A call that starts while another runs cannot be an answer to its result.
        self._turn += not self.running
        self.running += 1
        place = len(self._calls)
        self._calls += (self._turn, "", None, None, None)
        return place

    def read(
        self, place: int, body: bytes, id: str | None, said: str | None, result: bytes | str
    ) -> ToolOutput:
        """Keeps a call and its result, and reads the result. Raises as `tool_output` does.

        `body` is its request, `said` the message that a `@terminal` tool gets.
        """
        # Decoded, since orjson leaves 4 KB reserved behind its bytes.
        self._calls[place + 1 : place + _FIELDS] = body.decode(), id, said, result
        output = tool_output(result)
        if len(result) > SHORT_CHARS:
            self._calls[place + _FIELDS - 1] = output
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

    def _kept(self) -> Iterator[list[Any]]:
        return (self._calls[at : at + _FIELDS] for at in range(0, len(self._calls), _FIELDS))

    def _ended(self) -> Iterator["_Ended"]:
        for number, (turn, body, id, said, result) in enumerate(self._kept(), 1):
            if result is None:
                continue
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
