"""Chats as trainers want them: messages, tools as methods, and calls as text."""

import base64
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature
from keyword import iskeyword
from reprlib import repr as short
from typing import Any, assert_never

from ors.client import ToolCallError, ToolInvocation, convert_tools, parse_tool_call
from ors.rollouts import AgentMessage, Message, SystemMessage, ToolMessage, UserMessage
from ors.types import Block, Blocks, ImageBlock, TextBlock, ToolSpec, described, text_and_images

Content = str | list[dict[str, Any]]


def content_of(blocks: Blocks) -> Content:
    """A string if there are no images, as many chat templates want it; otherwise parts."""
    text, images = text_and_images(blocks)
    return [_part(block) for block in blocks] if images else whole(text)


def text_of(blocks: Blocks) -> str:
    """The text of blocks, for models without vision: images are named."""
    return whole(described(blocks))


def whole(text: str) -> str:
    """The text, with a replacement for half a character, which tokenizers refuse."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def images_of(content: Content) -> list[Any]:
    return [] if isinstance(content, str) else [part["image"] for part in content if "image" in part]


def chat_message(message: Message, content_of: Callable[[Blocks], Content] = content_of) -> dict[str, Any]:
    match message:
        case SystemMessage():
            return {"role": "system", "content": message.text}
        case UserMessage():
            return {"role": "user", "content": content_of(message.blocks)}
        case AgentMessage():
            return reply_message(message.text, message.calls)
        case ToolMessage():
            content = content_of(message.blocks)
            name = whole(message.name)
            return {"role": "tool", "tool_call_id": message.call, "name": name, "content": content}
        case _:
            assert_never(message)


def reply_message(text: str, calls: Sequence[ToolInvocation]) -> dict[str, Any]:
    made = [
        {"type": "function", "id": call.id, "function": {"name": call.name, "arguments": call.input}}
        for call in calls
    ]
    message = {"role": "assistant", "content": text, **({"tool_calls": made} if made else {})}
    if "\\ud" not in repr(message):  # half a character is shown like this
        return message
    said: dict[str, Any] = json.loads(whole(json.dumps(message, ensure_ascii=False)))
    return said


def tool_schemas(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """The tools, as functions."""
    return convert_tools(tools, "openai-chat")


def call_of(name: str, arguments: Any, id: str) -> ToolInvocation:
    """A call of the model; arguments that cannot be read are an error for the model."""
    if isinstance(arguments, dict):
        return ToolInvocation(name, arguments, id)
    try:
        return parse_tool_call({"id": id, "function": {"name": name, "arguments": arguments}}, "openai-chat")
    except ToolCallError as error:
        raw = arguments if isinstance(arguments, str) else short(arguments)
        return ToolInvocation(name, {}, id, str(error), raw)


def _part(block: Block) -> dict[str, Any]:
    match block:
        case TextBlock():
            return {"type": "text", "text": whole(block.text)}
        case ImageBlock():
            from PIL import Image  # trainers of models with vision have it

            return {"type": "image", "image": Image.open(io.BytesIO(base64.b64decode(block.data)))}
        case _:
            assert_never(block)


_CALL = re.compile("<tool_call>(.*?)</tool_call>", re.DOTALL)
_ENDS = re.compile(r"<\|(?:im_end|endoftext|eot_id)\|>\s*$")


def described_tools(tools: Sequence[ToolSpec]) -> str:
    """The text that tells a model of its tools, where the chat template does not."""
    lines = "\n".join(json.dumps(tool) for tool in tool_schemas(tools))
    return (
        f"# Tools\n\nYou may call these functions:\n<tools>\n{lines}\n</tools>\n\n"
        "For each call, write a JSON object with the name and the arguments of the function:\n"
        '<tool_call>\n{"name": "...", "arguments": {...}}\n</tool_call>'
    )


def parse_reply(text: str) -> AgentMessage:
    """A reply of the model. A call that cannot be read goes back to the model with an error."""
    whole, end, rest = text.rpartition("</tool_call>")  # a call without an end is no call
    pieces = _CALL.split(whole + end)
    calls = tuple(_call(each, number) for number, each in enumerate(pieces[1::2]))
    said = "".join([*pieces[::2], rest])
    return AgentMessage(_ENDS.sub("", said.strip()).strip(), calls)


def last_reply(messages: Sequence[Mapping[str, Any]]) -> AgentMessage | None:
    """The reply that ends a conversation, if it has no calls that the trainer could read."""
    last = messages[-1] if messages else {}
    if last.get("role") != "assistant" or last.get("tool_calls"):
        return None
    return parse_reply(str(last.get("content") or ""))


def _call(text: str, number: int) -> ToolInvocation:
    id = f"call_{number}"
    whole = call_of("unread", text, id).input
    if isinstance(name := whole.get("name"), str):
        return call_of(name, whole.get("arguments"), id)
    error = "The call is not a JSON object with a name and arguments."
    return ToolInvocation("unread", {}, id, error, text)


_TYPES: dict[Any, Any] = {"string": str, "integer": int, "number": float, "boolean": bool, "object": dict}


def tool_method(name: str, parameters: Mapping[str, Any], description: str = "") -> Callable[..., Any]:
    """The method of a tool, for a class that has `_call(name, given)`.

    Raises:
        ValueError: the tool or one of its arguments has a name that does not fit.
    """
    properties = parameters.get("properties", {})
    if not name.isidentifier() or name.startswith("_") or name in ("reset", "get_reward"):
        raise ValueError(f"The tool {name!r} cannot be a method of an environment of TRL: rename it")
    for key in properties:
        if not key.isidentifier() or iskeyword(key):
            raise ValueError(f"The argument {key!r} of a tool is not a Python name, as TRL needs: rename it")

    def method(self: Any, **given: Any) -> Any:
        return self._call(name, given)

    required = parameters.get("required", ())
    hints = {key: _hint(schema) for key, schema in properties.items()}
    arguments = [Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)]
    for key, schema in properties.items():
        default = Parameter.empty if key in required else schema.get("default")
        arguments.append(Parameter(key, Parameter.KEYWORD_ONLY, default=default, annotation=hints[key]))
    method.__name__ = name
    method.__signature__ = Signature(arguments)  # type: ignore[attr-defined]
    method.__annotations__ = hints
    method.__doc__ = _docstring(description or name, properties)
    return method


def _hint(schema: Mapping[str, Any]) -> Any:
    """The type hint that the trainer turns into a schema."""
    if schema.get("type") == "array":
        return list[_hint(schema.get("items", {}))]  # type: ignore[misc]
    options = [_hint(each) for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    kind = schema.get("type")
    return options[0] if len(options) == 1 else _TYPES.get(kind if isinstance(kind, str) else None, Any)


def _docstring(description: str, properties: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [re.sub(r"\b(Args|Returns|Raises):", r"\1 -", description)]  # titles of sections
    if properties:
        lines += ["", "Args:"]
    lines += [f"    {name}: {_described(name, each)}" for name, each in properties.items()]
    return "\n".join(lines)


def _described(name: str, schema: Mapping[str, Any]) -> str:
    choices = schema.get("enum", ())
    text = " ".join(str(schema.get("description") or name).split())
    if choices and all(isinstance(each, str) for each in choices):
        text += f" (choices: {json.dumps(choices)})"
    return text
