"""Builds a tool's input from typed words and checks it against the tool's schema."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ors import JSONObject, ToolSpec
from ors.cli.errors import WrongUsage
from ors.cli.output.printing import signature
from ors.schemas import TYPES, flattened, sample


def found_tool(tools: Sequence[ToolSpec], name: str) -> ToolSpec:
    """Returns the tool of that name.

    Raises:
        WrongUsage: there is none.
    """
    for spec in tools:
        if spec.name == name:
            return spec
    raise WrongUsage(f"There is no tool {name!r}. Tools: {', '.join(spec.name for spec in tools) or 'none'}")


def usage(spec: ToolSpec) -> str:
    """Name and parameters of a tool, in one line."""
    return f"{spec.name}({', '.join(signature(spec.input_schema))})"


def tool_input(spec: ToolSpec, words: Sequence[str], given: JSONObject | None = None) -> dict[str, Any]:
    """Builds the input of a tool from `key=value` words, which override a JSON object.

    Raises:
        WrongUsage: it does not fit the tool's parameters; the text names the parameter.
    """
    schema = _Schema(spec)
    values = dict(given or {})
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            raise WrongUsage(f"{word!r} is not key=value. Example: {example(spec)}")
        values[key] = schema.read(key, text)
    schema.check(values)
    return values


class _Schema:
    """Parameters of one tool. Schema keywords unknown here are left to the server, which checks all."""

    def __init__(self, spec: ToolSpec) -> None:
        self._spec = spec
        # Older servers may omit the schema, which says nothing about the parameters.
        self._root: dict[str, Any] = dict(spec.input_schema or {"additionalProperties": True})
        self._properties: Mapping[str, Any] = dict(self._root.get("properties") or {})

    def read(self, key: str, text: str) -> Any:
        about = self._about(key)
        choices = self._choices(about)
        for choice in choices:
            value = _read_as(choice, text)
            if value is not _NOT and self._fits(choice, value):
                return value
        raise WrongUsage(f"{self._spec.name}: {key} must be {self._type_name(about)}, not {text!r}")

    def check(self, values: Mapping[str, Any]) -> None:
        for key, value in values.items():
            about = self._about(key)
            if not any(self._fits(choice, value) for choice in self._choices(about)):
                raise WrongUsage(
                    f"{self._spec.name}: {key} must be {self._type_name(about)}, not {json.dumps(value)}"
                )
        missing = [key for key in self._root.get("required") or () if key not in values]
        if missing:
            raise WrongUsage(f"{self._spec.name} needs {', '.join(missing)}. Example: {example(self._spec)}")

    def _about(self, key: str) -> Any:
        if key in self._properties:
            return self._properties[key]
        more = self._root.get("additionalProperties")
        if more:
            return more
        known = ", ".join(self._properties) or "none"
        raise WrongUsage(f"{self._spec.name} has no parameter {key!r}. Parameters: {known}")

    def _choices(self, about: Any) -> list[Mapping[str, Any]]:
        about = flattened(about, self._root)
        for word in ("anyOf", "oneOf"):
            if about.get(word):
                return [choice for each in about[word] for choice in self._choices(each)]
        kinds = about.get("type")
        if isinstance(kinds, list):
            # Text comes last, since every word is valid text.
            return [{**about, "type": kind} for kind in sorted(kinds, key="string".__eq__)]
        return [about]

    def _fits(self, choice: Mapping[str, Any], value: Any) -> bool:
        if "enum" in choice or "const" in choice:
            return value in choice.get("enum", [choice.get("const")])
        kind = choice.get("type")
        if isinstance(value, bool) and kind in ("integer", "number"):
            return False
        if kind == "integer" and isinstance(value, float):
            return value.is_integer()
        return not isinstance(kind, str) or isinstance(value, TYPES.get(kind, (object,)))

    def _type_name(self, about: Any) -> str:
        return signature({**self._root, "properties": {"it": about}, "required": ["it"]})[0].removeprefix(
            "it: "
        )


_NOT = object()


def _read_as(choice: Mapping[str, Any], text: str) -> Any:
    options = choice.get("enum", [choice["const"]] if "const" in choice else [])
    if choice.get("type") == "string" or text in options:
        return text
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        # A parameter without a type accepts anything, so a word that is not JSON is text.
        return _NOT if "type" in choice or options else text


def example(spec: ToolSpec) -> str:
    """Example call of a tool, as it would be typed."""
    values = sample(spec.input_schema).items()
    words = (f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in values)
    return " ".join([spec.name, *map(shlex.quote, words)])
