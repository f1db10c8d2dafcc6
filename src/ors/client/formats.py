"""Tools as model providers write them: specs on the way out, calls on the way back.

A schema is inlined (no `$ref`, no `allOf`, no titles) and its root made one object, as every provider asks.
Google takes the fields of its own `Schema` only: what those cannot say is told in the description. Nothing
optional becomes required: a model sees what the server will validate, or something wider.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, floor
from typing import Any, Literal, overload

from ors._json import dumps, loads
from ors.errors import ToolCallError
from ors.schemas._structure import Schema, both, branches, inlined, type_of, types, walk
from ors.types import ToolSpec

__all__ = ["Provider", "ToolInvocation", "convert_tool_response", "convert_tools", "parse_tool_call"]

# `openai` is the Responses API, `openai-chat` is Chat Completions.
Provider = Literal["openai", "openai-chat", "anthropic", "google", "openrouter"]


@dataclass(frozen=True)
class ToolInvocation:
    """A model's wish to call a tool: `session.call_tool(name, input)`; its result is sent back under `id`."""

    name: str
    input: dict[str, Any]
    id: str | None = None


def convert_tools(tools: Sequence[ToolSpec], format: Provider) -> list[dict[str, Any]]:
    """The tools as `format` expects them in a request.

    Raises:
        ValueError: `format` is unknown; or a name breaks the provider's rule (it is never changed: the
            model calls the tool by it), an input is not an object, a `$ref` leads nowhere.
    """
    target = _format(format)
    return [_converted(tool, target) for tool in tools]


@overload
def convert_tool_response(res: Mapping[str, Any], format: None = None) -> list[ToolSpec]: ...


@overload
def convert_tool_response(res: Mapping[str, Any], format: Provider) -> list[dict[str, Any]]: ...


def convert_tool_response(
    res: Mapping[str, Any], format: Provider | None = None
) -> list[ToolSpec] | list[dict[str, Any]]:
    """The tools of an answer of `/{env}/tools`: as `ToolSpec`s, or as `format` expects them.

    Raises:
        ValueError: as `convert_tools`; or a tool has no name.
    """
    # Servers of the field leave out what is empty, and add keys of their own.
    known = [{key: tool.get(key) for key in ("name", "description", "input_schema")} for tool in res["tools"]]
    tools = [ToolSpec.model_validate(tool | {"description": tool["description"] or ""}) for tool in known]
    return tools if format is None else convert_tools(tools, format)


def parse_tool_call(call: Any, format: Provider | None = None) -> ToolInvocation:
    """The call in a provider's own object or dict; without `format` it is known by its shape.

    A `function_call` item (openai), an entry of `tool_calls` (openai-chat, openrouter), a `tool_use` block
    (anthropic), a `FunctionCall` or the `Part` around it (google).

    Raises:
        ToolCallError: the model's arguments are not a JSON object; the text can be told to it.
        ValueError: `call` is no tool call, or `format` is unknown.
    """
    readers = [each.call for each in (_FORMATS.values() if format is None else [_format(format)])]
    name, arguments, id = next((found for read in readers if (found := read(call))), (None, None, None))
    if not isinstance(name, str):
        raise ValueError(f"Not a tool call of {format or 'any known provider'}: {call!r:.200}")
    return ToolInvocation(name, _input(name, arguments), id)


# Name, arguments and id of a call; None if it is not of the reader's kind.
Reader = Callable[[Any], tuple[Any, Any, Any] | None]


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


def _field(value: Any, *names: str) -> Any:
    """The first of these that is there: providers' objects have attributes, their JSON has keys."""
    found = (value.get(n) if isinstance(value, Mapping) else getattr(value, n, None) for n in names)
    return next((each for each in found if each is not None), None)


def _typed(type: str, arguments: str, id: str, call: Any) -> tuple[Any, Any, Any] | None:
    if _field(call, "type") != type:
        return None
    return _field(call, "name"), _field(call, arguments), _field(call, id)


def _chat_call(call: Any) -> tuple[Any, Any, Any] | None:
    function = _field(call, "function")
    return function and (_field(function, "name"), _field(function, "arguments"), _field(call, "id"))


def _google_call(call: Any) -> tuple[Any, Any, Any] | None:
    inner = _field(call, "function_call", "functionCall") or call
    # A FunctionCall has no `type`, nor `args` if the tool takes none: what has others' fields is theirs.
    if _field(inner, "type", "arguments", "input", "function") is not None:
        return None
    return _field(inner, "name"), _field(inner, "args"), _field(inner, "id")


def _converted(tool: ToolSpec, target: "_Format") -> dict[str, Any]:
    try:
        if not re.fullmatch(target.names, tool.name):
            raise ValueError(f"the provider wants a name that matches ^{target.names}$")
        schema = tool.input_schema or {}
        described = {"description": tool.description} if tool.description else {}
        return target.spec({"name": tool.name, **described}, _object(inlined(schema)))
    except ValueError as error:
        raise ValueError(f"Tool {tool.name!r}: {error}") from None


def _responses_spec(named: Schema, schema: Schema) -> Schema:
    # Left out, `strict` would make the Responses API require every optional field
    # (developers.openai.com/api/docs/guides/function-calling, "Strict mode").
    return {"type": "function", **named, "parameters": _completed(schema), "strict": False}


def _chat_spec(named: Schema, schema: Schema) -> Schema:
    return {"type": "function", "function": {**named, "parameters": _completed(schema)}}


def _anthropic_spec(named: Schema, schema: Schema) -> Schema:
    rule = "[a-zA-Z0-9_.-]{1,64}"
    if wrong := [name for name in schema.get("properties", ()) if not re.fullmatch(rule, name)]:
        # The API would refuse the whole request, in these words.
        raise ValueError(f"property keys should match pattern '^{rule}$', not {', '.join(wrong)}")
    return {"type": "custom", **named, "input_schema": _completed(schema)}


def _google_spec(named: Schema, schema: Schema) -> Schema:
    # "For function with no parameters, this can be left unset"; an object without properties was refused.
    takes = schema.get("properties") or schema.get("additionalProperties")
    return {**named, "parameters": _google(schema)} if takes else named


def _completed(schema: Mapping[str, Any]) -> Schema:
    # OpenAI refuses arrays without `items` and objects without `properties`; empty ones mean the same.
    done = walk(schema, _completed)
    needed = {"array": "items", "object": "properties"}
    return done | {key: done.get(key, {}) for kind, key in needed.items() if kind in types(done)}


# "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'const'/'not' at the top
# level" (OpenAI); Anthropic refuses the first three as well.
_NOT_AT_ROOT = frozenset({"anyOf", "oneOf", "enum", "const", "not"})


def _object(schema: Mapping[str, Any]) -> Schema:
    """The schema of a tool's whole input: an object, with alternatives inside its properties only."""
    objects = [each for each in branches(schema) if "object" in types(each, "object")]
    if objects:
        schema = {**schema, **_either([_object(each) for each in objects])}
    if "object" not in types(schema, "object"):
        raise ValueError(f"its input is described as {schema['type']}, not as an object")
    return {"type": "object", **{k: v for k, v in schema.items() if k not in {*_NOT_AT_ROOT, "type"}}}


def _either(objects: Sequence[Schema]) -> Schema:
    sets = [each.get("properties", {}) for each in objects]
    names = dict.fromkeys(name for given in sets for name in given)
    required = [name for name in names if all(name in each.get("required", ()) for each in objects)]
    properties = {name: _any_of(given[name] for given in sets if name in given) for name in names}
    return {"properties": properties, "required": required}


def _any_of(schemas: Iterable[Schema]) -> Schema:
    distinct = list({dumps(each): each for each in schemas}.values())
    return distinct[0] if len(distinct) == 1 else {"anyOf": distinct}


_GOOGLE_FIELDS = {
    "object": ("properties", "required", "minProperties", "maxProperties"),
    "array": ("items", "minItems", "maxItems"),
    "string": ("enum", "format", "pattern", "minLength", "maxLength"),
    "number": ("format", "minimum", "maximum"),
    "integer": ("format", "minimum", "maximum"),
}
# "only 'enum' and 'date-time' are supported for STRING type"; of numbers what types.Schema says.
_GOOGLE_FORMATS = {"date-time", "float", "double", "int32", "int64"}
# What has no field there and still means something to a model.
_TOLD = (
    "enum default format exclusiveMinimum exclusiveMaximum multipleOf uniqueItems prefixItems contains"  # noqa: SIM905
    " additionalProperties patternProperties propertyNames dependentRequired not examples".split()
)
_SCALARS = ("string", "number", "boolean", "object")
# What a schema without a type is about; of a keyword of several types, the first.
_IMPLIED = {"additionalProperties": "object", "prefixItems": "array"} | {
    field: kind for kind, fields in reversed(_GOOGLE_FIELDS.items()) for field in fields
}


def _google(schema: Mapping[str, Any]) -> Schema:
    kinds = _single_types(schema)
    some = [each for each in kinds if each["type"] != "null"]
    nullable = {"nullable": True} if len(some) < len(kinds) else {}
    # "When using any_of, it must be the only field set": so description and nullable go to its branches.
    return _any_of({**_google_node(each), **nullable} for each in some) if some else {"type": "null"}


def _single_types(schema: Mapping[str, Any]) -> list[Schema]:
    """The schema as alternatives of one type each: `Schema.type` must be there, and takes no list."""
    if alternatives := branches(schema):
        return [each for branch in alternatives for each in _single_types(branch)]
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if values is None:
        implied = [_IMPLIED[key] for key in schema if key in _IMPLIED][:1] or [*_SCALARS, "array", "null"]
        return [{**schema, "type": kind} for kind in types(schema, *implied)]
    fitting = {"number": ("number", "integer")}
    kinds = types(schema, *dict.fromkeys(map(type_of, values)))
    typed = [(kind, [v for v in values if type_of(v) in fitting.get(kind, (kind,))]) for kind in kinds]
    return [{**schema, "type": kind, "enum": each} for kind, each in typed if each]


def _google_node(schema: Mapping[str, Any]) -> Schema:
    schema = _closed(schema) if schema["type"] == "integer" else dict(schema)
    if schema.get("additionalProperties") in (True, False, {}):
        del schema["additionalProperties"]
    fields = ("type", "description", *_GOOGLE_FIELDS.get(schema["type"], ()))
    node = {key: schema[key] for key in fields if key in schema}
    if node.get("format", "date-time") not in _GOOGLE_FORMATS:
        del node["format"]
    if "" in node.get("enum", ()):
        del node["enum"]  # "enum[0]: cannot be empty"
    if node["type"] == "object":
        node["properties"] = {name: _google(each) for name, each in node.get("properties", {}).items()}
        node["required"] = [name for name in node.get("required", ()) if name in node["properties"]]
        node = {key: value for key, value in node.items() if value not in ([], {})}
    if node["type"] == "array":
        node["items"] = _google_items(schema)
    lost = [key for key in _TOLD if key not in node and schema.get(key) is not None]
    told = ", ".join(f"{key}: {dumps(schema[key]).decode()}" for key in lost)
    return both(node, {"description": told}) if told else node


def _google_items(schema: Mapping[str, Any]) -> Schema:
    items = schema.get("items")
    every = [*schema.get("prefixItems", ()), *([items] if isinstance(items, Mapping) else items or ())]
    # Without any, not "anything": that has arrays among it, and would not end.
    return _google({"anyOf": every} if every else {"type": _SCALARS})


def _closed(schema: Mapping[str, Any]) -> Schema:
    """An integer's bounds with the bound itself included: Google has no others."""
    closed = dict(schema)
    if (above := closed.pop("exclusiveMinimum", None)) is not None:
        closed["minimum"] = max(floor(above) + 1, closed.get("minimum", above))
    if (below := closed.pop("exclusiveMaximum", None)) is not None:
        closed["maximum"] = min(ceil(below) - 1, closed.get("maximum", below))
    return closed


@dataclass(frozen=True)
class _Format:
    names: str
    spec: Callable[[Schema, Schema], Schema]
    call: Reader


_CHAT = _Format("[a-zA-Z0-9_-]{1,64}", _chat_spec, _chat_call)
# Names as openai's FunctionDefinition, Anthropic's refusal and google's FunctionDeclaration want them.
_FORMATS = {
    "openai": _Format(_CHAT.names, _responses_spec, partial(_typed, "function_call", "arguments", "call_id")),
    "openai-chat": _CHAT,
    "anthropic": _Format("[a-zA-Z0-9_-]{1,128}", _anthropic_spec, partial(_typed, "tool_use", "input", "id")),
    "google": _Format("[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}", _google_spec, _google_call),
    "openrouter": _CHAT,
}


def _format(name: str) -> _Format:
    if name not in _FORMATS:
        raise ValueError(f"Invalid format: {name!r}")
    return _FORMATS[name]
