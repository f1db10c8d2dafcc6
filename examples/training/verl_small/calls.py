"""The calls of the small model: a number is a guess."""

import json
from collections.abc import Sequence
from typing import Any

from verl.experimental.agent_loop.tool_parser import FunctionCall, ToolParser


@ToolParser.register("numbers")
class NumberParser(ToolParser):
    """Reads every reply as a call of `guess`, with the number at its end.

    Without a number it is refused, which costs a turn.
    """

    async def extract_tool_calls(
        self, responses_ids: Sequence[int], tools: Sequence[Any] = ()
    ) -> tuple[str, list[FunctionCall]]:
        """The text before the number, and the call."""
        *before, last = [self.tokenizer.decode([token]) for token in responses_ids]
        given = {"number": int(last)} if last.isdecimal() else {}
        return " ".join(before), [FunctionCall(name="guess", arguments=json.dumps(given))]
