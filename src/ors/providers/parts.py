"""Parts that the modules of several providers share."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ors._json import dumps, loads
from ors.errors import ToolCallError
from ors.providers.base import JSON, RawCall
from ors.providers.messages import StopReason, ToolInvocation, Usage
from ors.schemas.structure import Schema, branches, type_of, types, walk
from ors.types import Blocks, ImageBlock, TextBlock

NO_BLOCKS: Blocks = [TextBlock(text="(empty)")]
"""Stands for an empty prompt, where a provider accepts no empty message."""

# ── Reading ──


def field(value: Any, *names: str) -> Any:
    """The first of these fields that is set: SDK objects have attributes, parsed JSON has keys."""
    keyed = type(value) is dict or isinstance(value, Mapping)  # the first is much faster
    for name in names:
        found = value.get(name) if keyed else getattr(value, name, None)
        if found is not None:
            return found
    return None


def at(value: Any, *path: str | int) -> Any:
    """The value at a path of keys and positions; None if there is none."""
    for step in path:
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def entries(value: Any, *path: str | int) -> list[JSON]:
    found = at(value, *path)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def text(value: Any, *path: str | int) -> str:
    """The text at a path, or an empty one."""
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def count(value: Any, *path: str | int) -> int:
    found = at(value, *path)
    return found if isinstance(found, int) and found > 0 else 0


def openai_usage(usage: Any, sent: str, made: str) -> Usage:
    """The counts of one of OpenAI's APIs, by its words for what a model was sent and what it made."""
    return Usage(
        input_tokens=count(usage, f"{sent}_tokens"),
        output_tokens=count(usage, f"{made}_tokens"),
        cached_tokens=count(usage, f"{sent}_tokens_details", "cached_tokens"),
        reasoning_tokens=count(usage, f"{made}_tokens_details", "reasoning_tokens"),
    )


def stop_of(reason: Any, stops: Mapping[str, StopReason], why: str = "") -> StopReason:
    """What a provider's stop reason means: an answer, a cut-off, a refusal or a pause.

    Raises:
        ValueError: it is in no table: the provider failed, or the reason is new. The reply is no answer.
    """
    if not isinstance(reason, str) or reason not in stops:
        raise ValueError(f"the model stopped with {reason!r:.100}" + (f": {why:.300}" if why else ""))
    return stops[reason]


def typed_call(call: Any, type: str, *, arguments: str, id: str) -> RawCall | None:
    """The parts of a call whose `type` field marks it as one."""
    if field(call, "type") != type:
        return None
    return field(call, "name"), field(call, arguments), field(call, id)


def checked_call(raw: RawCall | None) -> ToolInvocation:
    """A call of a model.

    Raises:
        ToolCallError: its arguments are not a JSON object.
        ValueError: it is not a call.
    """
    name, arguments, id = raw or (None, None, None)
    if not isinstance(name, str):
        raise ValueError("not a tool call")
    try:
        # Some OpenAI-compatible servers send "" for a tool without parameters.
        value = loads(arguments.strip() or "{}") if isinstance(arguments, str) else arguments
        if value is None or isinstance(value, Mapping):
            return ToolInvocation(name, dict(value or {}), id)
        wrong = f"of type {type_of(value)}"
    except ValueError:
        wrong = "not valid JSON"
    message = f"The arguments of {name!r} are {wrong}: send a JSON object."
    raise ToolCallError(message, reason="input_validation")


def invocation(raw: RawCall | None, *, cut: bool = False) -> ToolInvocation:
    """A call of the model; with `error` if its arguments cannot be read, or the output was cut off in it."""
    try:
        read = checked_call(raw)
        if not cut:
            return read
        error = (
            "The output was cut off before the end of this call"  # what is there may be valid all the same
        )
    except ToolCallError as refusal:
        error = str(refusal)
    name, written, id = raw or ("", None, None)
    unread = written if isinstance(written, str) else "" if written is None else dumps(written).decode()
    return ToolInvocation(name, {}, id, error, unread)


def give_ids(calls: Iterable[JSON], key: str = "id") -> None:
    """Gives calls without an id one, and those whose id another call has: servers have sent both."""
    seen = {""}
    for call in calls:
        if text(call, key) in seen:
            call[key] = f"call_{os.urandom(8).hex()}"
        seen.add(call[key])


# ── Writing ──


def data_url(image: ImageBlock) -> str:
    return f"data:{image.mimeType};base64,{image.data}"


def id_of(call: ToolInvocation) -> str:
    """The id of a call, for providers that match results to calls by it."""
    if call.id is None:
        raise ValueError(f"The call of {call.name!r} has no id, which this provider needs: set it")
    return call.id


def function_of(call: ToolInvocation) -> dict[str, str]:
    """A call as OpenAI's APIs name it, with its arguments as text."""
    return {"name": call.name, "arguments": dumps(call.input).decode()}


def given(**fields: Any) -> JSON:
    return {name: value for name, value in fields.items() if value is not None and value != ()}


def merged(body: Mapping[str, Any], extra: Mapping[str, Any]) -> JSON:
    """`body` with the fields of `extra`, also inside objects; None removes a field."""
    made = dict(body)
    for name, value in extra.items():
        inner = made.get(name)
        if value is None:
            made.pop(name, None)
        elif isinstance(value, Mapping) and isinstance(inner, Mapping):
            made[name] = merged(inner, value)
        else:
            made[name] = value
    return made


# ── Schemas ──

# "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'const'/'not' at the top
# level" (OpenAI); Anthropic refuses the first three as well.
_NOT_AT_ROOT = frozenset({"anyOf", "oneOf", "enum", "const", "not"})


def object_schema(schema: Mapping[str, Any]) -> Schema:
    """The schema of a tool's whole input: one object, with alternatives only inside its properties."""
    objects = [each for each in branches(schema) if "object" in types(each, "object")]
    if objects:
        schema = {**schema, **_either([object_schema(each) for each in objects])}
    if "object" not in types(schema, "object"):
        raise ValueError(f"its input is described as {schema['type']}, not as an object")
    return {"type": "object", **{k: v for k, v in schema.items() if k not in {*_NOT_AT_ROOT, "type"}}}


def _either(objects: Sequence[Schema]) -> Schema:
    sets = [each.get("properties", {}) for each in objects]
    names = dict.fromkeys(name for given in sets for name in given)
    required = [name for name in names if all(name in each.get("required", ()) for each in objects)]
    properties = {name: any_of(given[name] for given in sets if name in given) for name in names}
    return {"properties": properties, "required": required}


def any_of(schemas: Iterable[Schema]) -> Schema:
    """A schema that accepts what one of these accepts; equal ones are merged."""
    distinct = list({dumps(each): each for each in schemas}.values())
    return distinct[0] if len(distinct) == 1 else {"anyOf": distinct}


def completed(schema: Mapping[str, Any]) -> Schema:
    """Adds the empty `items` and `properties` that OpenAI requires; they change no meaning."""
    done = walk(schema, completed)
    needed = {"array": "items", "object": "properties"}
    return done | {key: done.get(key, {}) for kind, key in needed.items() if kind in types(done)}
