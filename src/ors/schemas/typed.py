"""Tool calls as people type them: `NAME key=value`, `NAME {"key": value}`, or `NAME value`."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ors.schemas.samples import sample
from ors.schemas.structure import TYPES, branches, flattened, types
from ors.types import JSONObject, ToolSpec

QUOTES = '"""'
"""Before and after a value of several lines."""
DEEPEST_TYPE = 5
"""Types may be recursive."""


def find_tool(tools: Sequence[ToolSpec], name: str) -> ToolSpec:
    """The tool of that name. Raises ValueError if there is none."""
    for spec in tools:
        if spec.name == name:
            return spec
    raise ValueError(f"There is no tool {name!r}. Tools: {', '.join(spec.name for spec in tools) or 'none'}")


def usage(spec: ToolSpec) -> str:
    return f"{spec.name}({', '.join(signature(spec.input_schema))})"


def signature(schema: Any) -> list[str]:
    """Parameters of a tool, each as `name: type` or `name: type = default`."""
    found = []
    for name, each in _properties(schema).items():
        about = flattened(each, schema)
        text = f"{name}: {_type(about, schema)}"
        if name not in (schema.get("required") or ()):
            text += f" = {json.dumps(about['default'])}" if "default" in about else " (optional)"
        found.append(text)
    return found


def example(spec: ToolSpec) -> str:
    """Example call of a tool, as it would be typed."""
    values = sample(spec.input_schema).items()
    words = (f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in values)
    return " ".join([spec.name, *map(shlex.quote, words)])


def typed_input(spec: ToolSpec, words: Sequence[str], given: JSONObject | None = None) -> dict[str, Any]:
    """Builds the input of a tool from `key=value` words, which override a JSON object.

    Only names, types and choices are checked; the server checks the rest.

    Raises:
        ValueError: it does not fit the tool's parameters; the text names the parameter.
    """
    schema: Mapping[str, Any] = spec.input_schema or {}
    values = dict(given or {})
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            raise ValueError(f"{word!r} is not key=value. Example: {example(spec)}")
        values[key] = _value(spec, key, text)
    for key, value in values.items():
        if not _accepts(_parameter(spec, key), value, schema):
            raise _misfit(spec, key, json.dumps(value))
    if missing := [key for key in schema.get("required") or () if key not in values]:
        raise ValueError(f"{spec.name} needs {', '.join(missing)}. Example: {example(spec)}")
    return values


def typed_call(spec: ToolSpec, text: str) -> dict[str, Any]:
    """Builds the input of a tool from what was typed after its name.

    Raises:
        ValueError: it cannot be read, or does not fit the tool's parameters.
    """
    if text.startswith("{"):
        try:
            return typed_input(spec, (), json.loads(text))
        except json.JSONDecodeError as error:
            raise ValueError(f"Not valid JSON: {error}") from None
    schema: Mapping[str, Any] = spec.input_schema or {}
    names, required = list(_properties(schema)), schema.get("required") or []
    only = required if len(required) == 1 else names
    words = []
    if text and len(only) == 1 and not text.startswith(tuple(f"{name}=" for name in names)):
        named = "|".join(re.escape(name) for name in names if name != only[0]) or "$."
        value, text = (*re.split(rf"\s+(?=(?:{named})=)", text, maxsplit=1), "")[:2]
        words = [f"{only[0]}={unquoted(value)}"]
    try:
        words += shlex.split(_as_words(text))
    except ValueError as error:
        raise ValueError(f"The quotes do not match: {error}") from None
    return typed_input(spec, words)


def unquoted(text: str) -> str:
    """A value without the triple quotes around it, and without the line end after the first."""
    if len(text) < 2 * len(QUOTES) or not (text.startswith(QUOTES) and text.endswith(QUOTES)):
        return text
    return text.removeprefix(QUOTES).removesuffix(QUOTES).removeprefix("\n")


def is_open(line: str) -> bool:
    """Whether a typed call goes on in the next line: triple quotes or a JSON object are not closed yet."""
    given = line.strip().partition(" ")[2].lstrip()
    if not given.startswith("{"):
        return line.count(QUOTES) % 2 == 1
    try:
        json.loads(given)
    except json.JSONDecodeError as error:
        return error.pos >= len(given.rstrip())
    return False


def _as_words(text: str) -> str:
    parts = text.split(QUOTES)
    if len(parts) % 2 == 0:
        raise ValueError("triple quotes are not closed")
    return "".join(
        shlex.quote(part.removeprefix("\n")) if inside % 2 else part for inside, part in enumerate(parts)
    )


def _properties(schema: Any) -> Mapping[str, Any]:
    return (schema or {}).get("properties") or {}


def _parameter(spec: ToolSpec, key: str) -> Any:
    # Older servers may omit the schema, which says nothing about the parameters.
    schema = spec.input_schema or {"additionalProperties": True}
    properties = _properties(schema)
    if key not in properties and not schema.get("additionalProperties"):
        known = ", ".join(properties) or "none"
        raise ValueError(f"{spec.name} has no parameter {key!r}. Parameters: {known}")
    return properties.get(key, schema.get("additionalProperties"))


def _value(spec: ToolSpec, key: str, text: str) -> Any:
    """The value that a word stands for: JSON if the parameter takes that, else the text as it is."""
    parameter, root = _parameter(spec, key), spec.input_schema or {}
    values: list[Any] = [text]
    with suppress(json.JSONDecodeError):
        if not isinstance(value := json.loads(text), str):
            values.insert(0, value)
    for value in values:
        if _accepts(parameter, value, root):
            return value
    raise _misfit(spec, key, repr(text))


def _misfit(spec: ToolSpec, key: str, value: str) -> ValueError:
    kind = _type(_parameter(spec, key), spec.input_schema or {})
    return ValueError(f"{spec.name}: {key} must be {kind}, not {value}")


def _accepts(schema: Any, value: Any, root: Mapping[str, Any]) -> bool:
    about = flattened(schema, root)
    if choices := branches(about):
        return any(_accepts(each, value, root) for each in choices)
    if "enum" in about or "const" in about:
        return value in about.get("enum", [about.get("const")])
    return "type" not in about or any(_is(kind, value) for kind in types(about))


def _is(kind: str, value: Any) -> bool:
    if isinstance(value, bool) and kind in ("integer", "number"):
        return False
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, TYPES.get(kind, (object,)))


def _type(about: Any, root: Any, depth: int = 0) -> str:
    if depth > DEEPEST_TYPE:
        return "any"
    about = flattened(about, root)
    if "enum" in about or "const" in about:
        return "|".join(json.dumps(value) for value in about.get("enum", [about.get("const")]))
    if choices := branches(about):
        return "|".join(_type(choice, root, depth + 1) for choice in choices)
    kinds = types(about, "any")
    return f"[{_type(about.get('items', {}), root, depth + 1)}]" if kinds == ["array"] else "|".join(kinds)
