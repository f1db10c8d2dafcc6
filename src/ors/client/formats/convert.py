"""Converts tools to a provider's format, and reads the calls of its models.

Every schema is inlined (no `$ref`, no `allOf`, no titles) and its root made one object, as all providers
require. Optional fields stay optional.
"""

import re
from collections.abc import Mapping, Sequence
from reprlib import repr as short
from typing import Any, Literal, overload

from ors._json import loads
from ors.client.formats.anthropic import ANTHROPIC
from ors.client.formats.base import Format, ToolInvocation
from ors.client.formats.google import GOOGLE
from ors.client.formats.openai import CHAT, RESPONSES
from ors.client.formats.openrouter import OPENROUTER
from ors.client.formats.schemas import object_schema
from ors.errors import ToolCallError
from ors.schemas.structure import inlined, type_of
from ors.types import ToolSpec

Provider = Literal["openai", "openai-chat", "anthropic", "google", "openrouter"]
"""`openai` is the Responses API, `openai-chat` is Chat Completions."""

FORMATS: dict[Provider, Format] = {
    "openai": RESPONSES,
    "openai-chat": CHAT,
    "anthropic": ANTHROPIC,
    "google": GOOGLE,
    "openrouter": OPENROUTER,
}


def convert_tools(tools: Sequence[ToolSpec], format: Provider) -> list[dict[str, Any]]:
    """Converts tools to the form that `format` expects in a request.

    Raises:
        ValueError: `format` is unknown; or a tool's name breaks the provider's rule (names are never changed:
            the model calls the tool by its name), an input is not an object, a `$ref` leads nowhere.
    """
    target = format_of(format)
    return [_converted(tool, target) for tool in tools]


@overload
def convert_tool_response(res: Mapping[str, Any], format: None = None) -> list[ToolSpec]: ...


@overload
def convert_tool_response(res: Mapping[str, Any], format: Provider) -> list[dict[str, Any]]: ...


def convert_tool_response(
    res: Mapping[str, Any], format: Provider | None = None
) -> list[ToolSpec] | list[dict[str, Any]]:
    """The tools in an answer of `/{env}/tools`: as `ToolSpec`s, or as `format` expects them.

    Raises:
        ValueError: as `convert_tools`; or a tool has no name.
    """
    # Other servers omit empty values, and add keys of their own.
    known = [{key: tool.get(key) for key in ("name", "description", "input_schema")} for tool in res["tools"]]
    tools = [ToolSpec.model_validate(tool | {"description": tool["description"] or ""}) for tool in known]
    return tools if format is None else convert_tools(tools, format)


def parse_tool_call(call: Any, format: Provider | None = None) -> ToolInvocation:
    """Reads a tool call of a model, from a provider's object or dict; without `format`, any known one.

    Reads a `function_call` item (openai), an entry of `tool_calls` (openai-chat, openrouter), a `tool_use`
    block (anthropic), a `FunctionCall` or the `Part` around it (google).

    Raises:
        ToolCallError: the model's arguments are not a JSON object; send it the message.
        ValueError: `call` is not a tool call, or `format` is unknown.
    """
    if format is None:
        found = next(filter(None, (each.call(call) for each in FORMATS.values())), None)
    else:
        found = format_of(format).call(call)
    name, arguments, id = found or (None, None, None)
    if not isinstance(name, str):
        raise ValueError(f"Not a tool call of {format or 'any known provider'}: {short(call)}")
    return ToolInvocation(name, _input(name, arguments), id)


def _converted(tool: ToolSpec, target: Format) -> dict[str, Any]:
    try:
        if not re.fullmatch(target.names, tool.name):
            raise ValueError(f"the provider wants a name that matches ^{target.names}$")
        described = {"description": tool.description} if tool.description else {}
        schema = object_schema(inlined(tool.input_schema or {}))
        return target.spec({"name": tool.name, **described}, schema)
    except ValueError as error:
        raise ValueError(f"Tool {tool.name!r}: {error}") from None


def _input(name: str, arguments: Any) -> dict[str, Any]:
    try:
        # Some OpenAI-compatible servers send "" for a tool without parameters.
        value = loads(arguments.strip() or "{}") if isinstance(arguments, str) else arguments
        if value is None or isinstance(value, Mapping):
            return dict(value or {})
        wrong = f"of type {type_of(value)}"
    except ValueError:
        wrong = "not valid JSON"
    text = f"The arguments of {name!r} are {wrong}: send a JSON object."
    raise ToolCallError(text, reason="input_validation")


def format_of(name: Provider) -> Format:
    """The format of that name.

    Raises:
        ValueError: there is none.
    """
    if name not in FORMATS:
        raise ValueError(f"Invalid format: {name!r}; use one of {', '.join(FORMATS)}")
    return FORMATS[name]
