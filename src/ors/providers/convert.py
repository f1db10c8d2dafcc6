"""Converts tools, prompts, replies and results to a provider's format, and reads the calls of its models.

Every schema is inlined (no `$ref`, no `allOf`, no titles) and its root made one object, as all providers
require. Optional fields stay optional. All messages are plain JSON, as they go into the provider's HTTP
request: `input` items (openai), `messages` (openai-chat, openrouter, anthropic), `contents` (google).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from reprlib import repr as short
from typing import Any, overload

from ors.errors import ToolCallError
from ors.providers import PROVIDERS, Provider, api_of
from ors.providers.base import CallResult, Messages, ModelAPI
from ors.providers.messages import ToolInvocation
from ors.providers.parts import checked_call, object_schema
from ors.schemas.structure import inlined
from ors.types import Block, TextBlock, ToolOutput, ToolSpec


def convert_tools(tools: Sequence[ToolSpec], format: Provider) -> list[dict[str, Any]]:
    """Converts tools to the form that `format` expects in a request.

    Raises:
        ValueError: `format` is unknown; or a tool's name breaks the provider's rule (names are never changed:
            the model calls the tool by its name), an input is not an object, a `$ref` leads nowhere.
    """
    target = api_of(format)
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

    Reads a `function_call` item (openai, the Responses API), an entry of `tool_calls` (openai-chat,
    openrouter), a `tool_use` block (anthropic), a `FunctionCall` or the `Part` around it (google).

    Raises:
        ToolCallError: the model's arguments are not a JSON object; send it the message.
        ValueError: `call` is not a tool call, or `format` is unknown.
    """
    tried = PROVIDERS if format is None else (format,)
    found = next(filter(None, (api_of(name).read_call(call) for name in tried)), None)
    try:
        return checked_call(found)
    except ValueError:
        raise ValueError(f"Not a tool call of {format or 'any known provider'}: {short(call)}") from None


def _converted(tool: ToolSpec, target: ModelAPI) -> dict[str, Any]:
    try:
        if not re.fullmatch(target.tool_names, tool.name):
            raise ValueError(f"the provider wants a name that matches ^{target.tool_names}$")
        described = {"description": tool.description} if tool.description else {}
        schema = object_schema(inlined(tool.input_schema or {}))
        return target.write_tool({"name": tool.name, **described}, schema)
    except ValueError as error:
        raise ValueError(f"Tool {tool.name!r}: {error}") from None


def convert_prompt(blocks: Sequence[Block], format: Provider) -> Messages:
    """Converts a prompt, with its images, to the messages that `format` expects.

    Raises:
        ValueError: `format` is unknown.
    """
    return api_of(format).write_prompt(list(blocks))


def convert_reply(text: str, calls: Sequence[ToolInvocation], format: Provider) -> Messages:
    """Converts a reply of a model, as text and calls, to the messages that `format` expects.

    In a loop of your own, send the provider's answer back instead: it may contain reasoning.

    Raises:
        ValueError: `format` is unknown, or matches results to calls by id, and a call has none.
    """
    return api_of(format).write_reply(text, calls)


def convert_results(
    results: Iterable[tuple[ToolInvocation, ToolOutput | ToolCallError]], format: Provider
) -> Messages:
    """Converts the results of all calls of one reply to the messages that `format` expects.

    A refusal is marked as an error where the provider has a field for that (anthropic, google). Chat
    Completions takes no images in results: they follow in a user message.

    Raises:
        ValueError: as `convert_reply`.
    """
    return api_of(format).write_results([_result(call, output) for call, output in results])


def _result(call: ToolInvocation, output: ToolOutput | ToolCallError) -> CallResult:
    if isinstance(output, ToolCallError):
        return CallResult(call, [TextBlock(text=str(output))], ok=False)
    return CallResult(call, output.blocks, ok=True)
