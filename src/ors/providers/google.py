"""Google: the Gemini API.

Its `Schema` has few fields. All other keywords go into the description, so that a model sees the schema that
the server validates, or a wider one.
"""

from collections.abc import Mapping, Sequence
from math import ceil, floor
from typing import Any, assert_never
from urllib.parse import quote

from ors._json import dumps
from ors.providers.base import JSON, CallResult, Messages, ModelAPI, ModelRequest, Native, RawCall
from ors.providers.messages import AgentMessage, StopReason, ToolInvocation, Usage
from ors.providers.parts import (
    NO_BLOCKS,
    any_of,
    at,
    count,
    entries,
    field,
    give_ids,
    given,
    invocation,
    stop_of,
    text,
)
from ors.schemas.structure import Schema, both, branches, type_of, types
from ors.types import Block, Blocks, ImageBlock, TextBlock, text_and_images

_FIELDS = {
    "object": ("properties", "required", "minProperties", "maxProperties"),
    "array": ("items", "minItems", "maxItems"),
    "string": ("enum", "format", "pattern", "minLength", "maxLength"),
    "number": ("format", "minimum", "maximum"),
    "integer": ("format", "minimum", "maximum"),
}
# Strings: "only 'enum' and 'date-time' are supported for STRING type". Numbers: as types.Schema says.
_FORMATS = {"date-time", "float", "double", "int32", "int64"}
# Keywords without a field, which still tell a model something: they go into the description.
_DESCRIBED = (
    "enum default format exclusiveMinimum exclusiveMaximum multipleOf uniqueItems prefixItems contains"  # noqa: SIM905
    " additionalProperties patternProperties propertyNames dependentRequired not examples".split()
)
_SCALARS = ("string", "number", "boolean", "object")
# The type of a schema without one, by its keywords; for a keyword of several types, the first.
_IMPLIED = {"additionalProperties": "object", "prefixItems": "array"} | {
    keyword: kind for kind, fields in reversed(_FIELDS.items()) for keyword in fields
}


def _schema(schema: Mapping[str, Any]) -> Schema:
    kinds = _single_types(schema)
    some = [each for each in kinds if each["type"] != "null"]
    nullable = {"nullable": True} if len(some) < len(kinds) else {}
    # "When using any_of, it must be the only field set": so each branch gets description and nullable.
    return any_of({**_node(each), **nullable} for each in some) if some else {"type": "null"}


def _single_types(schema: Mapping[str, Any]) -> list[Schema]:
    """Alternatives of one type each: `Schema.type` is required, and cannot be a list."""
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


def _node(schema: Mapping[str, Any]) -> Schema:
    schema = _inclusive(schema) if schema["type"] == "integer" else dict(schema)
    if schema.get("additionalProperties") in (True, False, {}):
        del schema["additionalProperties"]
    fields = ("type", "description", *_FIELDS.get(schema["type"], ()))
    node = {key: schema[key] for key in fields if key in schema}
    if node.get("format", "date-time") not in _FORMATS:
        del node["format"]
    if "" in node.get("enum", ()):
        del node["enum"]  # "enum[0]: cannot be empty"
    if node["type"] == "object":
        node["properties"] = {name: _schema(each) for name, each in node.get("properties", {}).items()}
        node["required"] = [name for name in node.get("required", ()) if name in node["properties"]]
        node = {key: value for key, value in node.items() if value not in ([], {})}
    if node["type"] == "array":
        node["items"] = _items(schema)
    lost = [key for key in _DESCRIBED if key not in node and schema.get(key) is not None]
    told = ", ".join(f"{key}: {dumps(schema[key]).decode()}" for key in lost)
    return both(node, {"description": told}) if told else node


def _items(schema: Mapping[str, Any]) -> Schema:
    items = schema.get("items")
    every = [*schema.get("prefixItems", ()), *([items] if isinstance(items, Mapping) else items or ())]
    # Without item schemas: not every type, since arrays of arrays would never end.
    return _schema({"anyOf": every} if every else {"type": _SCALARS})


def _inclusive(schema: Mapping[str, Any]) -> Schema:
    """Makes the bounds of an integer inclusive: Google has no others."""
    bounded = dict(schema)
    if (above := bounded.pop("exclusiveMinimum", None)) is not None:
        bounded["minimum"] = max(floor(above) + 1, bounded.get("minimum", above))
    if (below := bounded.pop("exclusiveMaximum", None)) is not None:
        bounded["maximum"] = min(ceil(below) - 1, bounded.get("maximum", below))
    return bounded


def _write_tool(named: Schema, schema: Schema) -> Schema:
    # "For function with no parameters, this can be left unset"; an object without properties is refused.
    has_parameters = schema.get("properties") or schema.get("additionalProperties")
    return {**named, "parameters": _schema(schema)} if has_parameters else named


def _read_call(call: Any) -> RawCall | None:
    inner = field(call, "function_call", "functionCall") or call
    # A FunctionCall has no `type`, and no `args` if the tool takes none: fields of others exclude it.
    if field(inner, "type", "arguments", "input", "function") is not None:
        return None
    return field(inner, "name"), field(inner, "args"), field(inner, "id")


# Gemini 3 and later refuse a call without the signature of their own thoughts. For calls that another part
# made, their documentation gives this one (ai.google.dev/gemini-api/docs/thought-signatures, FAQ).
_NO_SIGNATURE = "skip_thought_signature_validator"


def _part(block: Block) -> JSON:
    match block:
        case TextBlock():
            return {"text": block.text}
        case ImageBlock():
            return {"inlineData": {"mimeType": block.mimeType, "data": block.data}}
        case _:
            assert_never(block)


def _write_prompt(blocks: Blocks) -> Messages:
    return [{"role": "user", "parts": [_part(block) for block in blocks or NO_BLOCKS]}]


def _write_reply(text: str, calls: Sequence[ToolInvocation]) -> Messages:
    parts: list[JSON] = [{"text": text}] if text else []
    for number, call in enumerate(calls):
        made = {"name": call.name, "args": dict(call.input)} | _id(call)
        parts.append({"functionCall": made} | ({} if number else {"thoughtSignature": _NO_SIGNATURE}))
    return [{"role": "model", "parts": parts}] if parts else []


def _write_results(results: Sequence[CallResult]) -> Messages:
    parts = [{"functionResponse": _response(each)} for each in results]
    return [{"role": "user", "parts": parts}] if parts else []


def _response(result: CallResult) -> JSON:
    key = "output" if result.ok else "error"
    text, images = text_and_images(result.blocks)
    made = {"name": result.call.name, "response": {key: text}} | _id(result.call)
    return made | ({"parts": [_part(image) for image in images]} if images else {})


def _id(call: ToolInvocation) -> dict[str, str]:
    return {} if call.id is None else {"id": call.id}


# All others are failures, such as OTHER, MALFORMED_FUNCTION_CALL, and none: the model has not stopped then.
_STOPS: dict[str, StopReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    **dict.fromkeys(("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT"), "refusal"),
    **dict.fromkeys(("SPII", "MODEL_ARMOR"), "refusal"),
    **dict.fromkeys(("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"), "refusal"),
}


def _path(model: str) -> str:
    return f"/v1beta/models/{quote(model.removeprefix('models/'), safe='')}:generateContent"


def _write_body(request: ModelRequest) -> JSON:
    options = request.options
    config = given(
        temperature=options.temperature,
        topP=options.top_p,
        maxOutputTokens=options.max_tokens,
        stopSequences=list(options.stop) or None,
        seed=options.seed,
        thinkingConfig=_thinking(options.reasoning_effort),
    )
    return given(
        contents=request.messages,
        systemInstruction={"parts": [{"text": request.system}]} if request.system else None,
        tools=[{"functionDeclarations": request.tools}] if request.tools else None,
        generationConfig=config or None,
    )


def _thinking(effort: str | None) -> JSON | None:
    return None if effort is None else {"thinkingLevel": effort.upper(), "includeThoughts": True}


def _read_answer(answer: Any) -> AgentMessage:
    candidate = at(answer, "candidates", 0)
    blocked = text(answer, "promptFeedback", "blockReason")
    if candidate is None and not blocked:
        raise ValueError("it has no candidates")
    why = text(candidate, "finishMessage")
    stop = "refusal" if blocked else stop_of(at(candidate, "finishReason"), _STOPS, why)
    parts = entries(candidate, "content", "parts")
    cut = parts[-1] if parts and stop == "length" else None
    calls = [part for part in parts if "functionCall" in part]
    give_ids(call for part in calls if text(call := part["functionCall"], "id"))  # most have none
    said = "".join(text(part, "text") for part in parts if not part.get("thought"))
    thoughts = [text(part, "text") for part in parts if part.get("thought")]
    return AgentMessage(
        text=said or why,
        calls=tuple(invocation(_read_call(part), cut=part is cut) for part in calls),
        reasoning="\n".join(filter(None, thoughts)) or None,
        stop=stop,
        usage=_usage(at(answer, "usageMetadata")),
        native=Native("google", [{"role": "model", "parts": parts}] if parts else []),
    )


def _usage(usage: Any) -> Usage:
    thoughts = count(usage, "thoughtsTokenCount")
    return Usage(
        input_tokens=count(usage, "promptTokenCount") + count(usage, "toolUsePromptTokenCount"),
        output_tokens=count(usage, "candidatesTokenCount") + thoughts,
        cached_tokens=count(usage, "cachedContentTokenCount"),
        reasoning_tokens=thoughts,
    )


API = ModelAPI(
    tool_names="[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}",  # as google's FunctionDeclaration says
    write_tool=_write_tool,
    read_call=_read_call,
    write_prompt=_write_prompt,
    write_reply=_write_reply,
    write_results=_write_results,
    base_url="https://generativelanguage.googleapis.com",
    url_variable="GOOGLE_GEMINI_BASE_URL",
    key_variables=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    key_headers=lambda key: {"x-goog-api-key": key},
    path=_path,
    write_body=_write_body,
    read_answer=_read_answer,
    too_long="input token count.{0,40}exceeds",
    retry_delay=rb'"retryDelay":\s*"(\d+(?:\.\d+)?)s"',
)
