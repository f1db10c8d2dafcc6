"""Tools and their calls as text, in the format of Hermes and Qwen."""

import json
import re
from typing import Any

from ors.adapters.common.chat import by_tools, call_of
from ors.client import ToolInvocation
from ors.rollouts import AgentMessage

_ENDS = re.compile(r"<\|(?:im_end|endoftext|eot_id)\|>\s*$")


@by_tools
def described_tools(schemas: list[dict[str, Any]]) -> str:
    """The text that tells a model of its tools, where the chat template does not."""
    lines = "\n".join(json.dumps(tool) for tool in schemas)
    return (
        f"# Tools\n\nYou may call these functions:\n<tools>\n{lines}\n</tools>\n\n"
        "For each call, write a JSON object with the name and the arguments of the function:\n"
        '<tool_call>\n{"name": "...", "arguments": {...}}\n</tool_call>'
    )


def parse_reply(text: str) -> AgentMessage:
    """A reply of the model. A call that cannot be read goes back to the model with an error."""
    said, found = _parts(text)
    calls = tuple(_call(each, number) for number, each in enumerate(found))
    return AgentMessage(_ENDS.sub("", said.strip()).strip(), calls)


def _parts(text: str) -> tuple[str, list[str]]:
    """The text outside of the calls, and the texts of the calls. A call without an end is no call."""
    said: list[str] = []
    calls: list[str] = []
    while True:
        before, _, rest = text.partition("<tool_call>")
        call, end, rest = rest.partition("</tool_call>")
        if not end:
            return "".join((*said, text)), calls
        said.append(before)
        calls.append(call)
        text = rest


def _call(text: str, number: int) -> ToolInvocation:
    id = f"call_{number}"
    whole = call_of("unread", text, id).input
    if isinstance(name := whole.get("name"), str):
        return call_of(name, whole.get("arguments"), id)
    error = "The call is not a JSON object with a name and arguments."
    return ToolInvocation("unread", {}, id, error, text)
