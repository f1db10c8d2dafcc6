"""Generates inputs for a tool from its schema."""

import math
import random
import string
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from ors.schemas.structure import both, flattened

T = TypeVar("T")

MAX_DEPTH = 8
_FORMATS = {
    "date": "2024-02-29",
    "date-time": "2024-02-29T12:00:00Z",
    "time": "12:00:00Z",
    "email": "a@example.com",
    "uri": "https://example.com/",
    "uuid": "3f2b8c1e-1d2a-4e7b-9f00-1234567890ab",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
}


class Inputs:
    """Generates random values for a schema. They fit simple schemas; the same seed gives the same values.

    A string with a pattern is one of the schema's examples, or its default. Without them it may not match.
    """

    def __init__(self, source: random.Random) -> None:
        self._random = source

    def make(self, schema: Mapping[str, Any] | None) -> Any:
        return {} if schema is None else _Generator(self._random, schema).value(schema, 0)


def emptiest(schema: Mapping[str, Any] | None) -> Any:
    """The emptiest value that fits a schema: no optional fields, empty strings and lists, zeros."""
    return {} if schema is None else _Simplest(schema, shown=False).value(schema, 0)


def sample(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """A simple input that fits a tool's schema: its examples and defaults, no optional fields."""
    made = {} if schema is None else _Simplest(schema, shown=True).value(schema, 0)
    return dict(made) if isinstance(made, Mapping) else {}


def needs_example(schema: Any) -> bool:
    """Whether a pattern in a schema has no example and no default: then no fitting input can be generated."""
    if isinstance(schema, Mapping):
        shown = schema.get("examples") or isinstance(schema.get("default"), str)
        bare = isinstance(schema.get("pattern"), str) and not shown
        return bare or any(map(needs_example, schema.values()))
    return isinstance(schema, list) and any(map(needs_example, schema))


def needs_choice(schema: Mapping[str, Any] | None) -> bool:
    """Whether even the emptiest value contains a choice: a number, a flag, one of several values."""
    return _chooses(emptiest(schema))


def _chooses(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_chooses(inner) for inner in value.values())
    if isinstance(value, list):
        return any(_chooses(inner) for inner in value)
    return value not in ("", None) or isinstance(value, bool)


class _Generator:
    """Generates one value; `root` is the document that `$ref` refers to."""

    def __init__(self, source: random.Random, root: Mapping[str, Any]) -> None:
        self._random = source
        self._root = root

    def value(self, schema: Any, depth: int) -> Any:
        if not isinstance(schema, Mapping):
            return "anything"
        schema = flattened(schema, self._root)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._pick(list(schema["enum"]))
        for key in ("anyOf", "oneOf"):
            if schema.get(key):
                rest = {name: rule for name, rule in schema.items() if name != key}
                return self.value(both(rest, self._branch(schema[key], depth)), depth)
        return self._of_type(schema, depth)

    def _pick(self, options: Sequence[T]) -> T:
        return self._random.choice(options)

    def _whole(self, low: float, high: float) -> int:
        return self._random.randint(math.ceil(low), math.floor(high))

    def _includes_optional(self) -> bool:
        return self._random.random() < 0.5

    def _branch(self, branches: list[Any], depth: int) -> Mapping[str, Any]:
        plain = [branch for branch in branches if isinstance(branch, Mapping)] or [{}]
        if depth >= MAX_DEPTH - 2:  # ends the recursion of a schema that contains itself
            return min(
                plain, key=lambda branch: "$ref" in branch or branch.get("type") in ("object", "array")
            )
        return self._pick(plain)

    def _of_type(self, schema: Mapping[str, Any], depth: int) -> Any:
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = self._pick(kind) if kind else None
        if kind is None:
            kind = "object" if "properties" in schema else "array" if "items" in schema else "string"
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        if kind in ("integer", "number"):
            return self._number(schema, kind == "integer")
        if kind == "boolean":
            return self._pick((False, True))
        return None if kind == "null" else self._string(schema)

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        required = set(schema.get("required", ()))
        properties: Mapping[str, Any] = schema.get("properties", {})
        made = {}
        for name, rule in properties.items():
            if name in required or (depth < MAX_DEPTH // 2 and self._includes_optional()):
                made[name] = self.value(rule, depth + 1)
        for name in sorted(required - properties.keys()):
            made[name] = self.value(schema.get("additionalProperties"), depth + 1)
        while len(made) < schema.get("minProperties", 0):
            made[f"key{len(made)}"] = self.value(schema.get("additionalProperties"), depth + 1)
        return made

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        first = [self.value(rule, depth + 1) for rule in schema.get("prefixItems", ())]
        low = schema.get("minItems", 0)
        high = schema.get("maxItems", max(low, 3))
        if depth >= MAX_DEPTH // 2:
            high = low
        count = self._whole(max(low, len(first)), max(low, high, len(first)))
        items = schema.get("items", {})
        made = first + [self.value(items, depth + 1) for _ in range(count - len(first))]
        if schema.get("uniqueItems"):
            made = self._distinct(made, items, low, depth)
        return made

    def _distinct(self, made: list[Any], items: Any, low: int, depth: int) -> list[Any]:
        distinct: list[Any] = []
        more = _Generator(self._random, self._root)
        for value in made + [more.value(items, depth + 1) for _ in range(20 if low else 0)]:
            if value not in distinct and len(distinct) < max(len(made), low):
                distinct.append(value)
        return distinct

    def _number(self, schema: Mapping[str, Any], whole: bool) -> int | float:
        step = schema.get("multipleOf")
        low = schema.get("minimum", schema.get("exclusiveMinimum"))
        high = schema.get("maximum", schema.get("exclusiveMaximum"))
        if low is None:
            low = -10 if high is None else high - 20
        if high is None:
            high = low + 20
        if "exclusiveMinimum" in schema:
            low = max(low, schema["exclusiveMinimum"] + (1 if whole else (high - low) / 1000))
        if "exclusiveMaximum" in schema:
            high = min(high, schema["exclusiveMaximum"] - (1 if whole else (high - low) / 1000))
        if step:
            number = self._whole(low / step, high / step) * step
            return int(number) if whole else number
        if whole:
            return self._whole(low, high)
        return round(self._random.uniform(low, high), 3) if high - low > 0.1 else (low + high) / 2

    def _string(self, schema: Mapping[str, Any]) -> str:
        if schema.get("examples"):
            return str(self._pick(schema["examples"]))
        if "pattern" in schema and isinstance(schema.get("default"), str):
            return str(schema["default"])
        if schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]]
        low = schema.get("minLength", 0)
        high = schema.get("maxLength", max(low, 12))
        length = self._whole(max(low, min(1, high)), max(low, min(high, low + 12)))
        return "".join(self._random.choice(string.ascii_letters + string.digits) for _ in range(length))


class _Simplest(_Generator):
    """Generates the simplest value: first choices, lower bounds, zeros, no optional fields.

    With `shown`, it prefers what the author shows: examples, defaults. Without, it prefers null and empty
    strings.
    """

    def __init__(self, root: Mapping[str, Any], *, shown: bool) -> None:
        super().__init__(random.Random(0), root)
        self._shown = shown

    def value(self, schema: Any, depth: int) -> Any:
        if not self._shown:
            return super().value(schema, depth)
        found = flattened(schema, self._root)
        shown = [*(found.get("examples") or ()), *(found.get("enum") or ())]
        if not shown and "default" in found:
            shown = [found["default"]]
        return shown[0] if shown else super().value(found, depth)

    def _pick(self, options: Sequence[T]) -> T:
        return options[0]

    def _whole(self, low: float, high: float) -> int:
        return math.ceil(low)

    def _includes_optional(self) -> bool:
        return False

    def _branch(self, branches: list[Any], depth: int) -> Mapping[str, Any]:
        nulls = [each for each in branches if isinstance(each, Mapping) and each.get("type") == "null"]
        return super()._branch(branches if self._shown else nulls or branches, depth)

    def _number(self, schema: Mapping[str, Any], whole: bool) -> int | float:
        above = schema.get("minimum", 0) <= 0 and schema.get("exclusiveMinimum", -1) < 0
        below = schema.get("maximum", 0) >= 0 and schema.get("exclusiveMaximum", 1) > 0
        return 0 if above and below else super()._number(schema, whole)

    def _string(self, schema: Mapping[str, Any]) -> str:
        if self._shown and schema.get("format") not in _FORMATS:
            length: int = schema.get("minLength", 1)
            return "x" * max(1, length)
        if self._shown or "pattern" in schema:
            return super()._string(schema)
        if schema.get("minLength", 0) or "format" in schema:
            return super()._string({key: rule for key, rule in schema.items() if key != "examples"})
        return ""
