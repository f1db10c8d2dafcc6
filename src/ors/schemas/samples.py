"""Generates inputs for a tool from its schema."""

import math
import random
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ors.schemas.structure import branches, flattened, types

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
_STEP = 0.001
"""Between a bound that is excluded and the numbers that are made."""
_TRIES = 20
"""For the items of a list that must differ."""
_LETTERS = string.ascii_letters + string.digits


@dataclass
class Inputs:
    """Generates random values for a schema. They fit simple schemas; the same seed gives the same values.

    A string with a pattern is one of the schema's examples, or its default. Without them it may not match.
    """

    source: random.Random

    def make(self, schema: Mapping[str, Any] | None) -> Any:
        return {} if schema is None else _Generator(schema, self.source).value(schema)


def emptiest(schema: Mapping[str, Any] | None) -> Any:
    """The emptiest value that fits a schema: no optional fields, empty strings and lists, zeros."""
    return {} if schema is None else _Generator(schema).value(schema)


def sample(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """A simple input that fits a tool's schema: its examples and defaults, no optional fields."""
    made = {} if schema is None else _Generator(schema, shown=True).value(schema)
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
        return any(map(_chooses, value.values()))
    if isinstance(value, list):
        return any(map(_chooses, value))
    return value not in ("", None) or isinstance(value, bool)


@dataclass
class _Generator:
    """Generates one value; `root` is the document that `$ref` refers to.

    Without a source of randomness, the simplest: first choices, numbers near zero, no optional fields. Then
    `shown` prefers what the author shows, such as examples, to null and empty strings.
    """

    root: Mapping[str, Any]
    source: random.Random | None = None
    shown: bool = False

    def value(self, schema: Any, depth: int = 0) -> Any:
        if not isinstance(schema, Mapping):
            return "anything"
        rule = flattened(schema, self.root)
        if self.shown and (shown := [*(rule.get("examples") or ()), *(rule.get("enum") or ())]):
            return shown[0]
        if self.shown and "default" in rule:
            return rule["default"]
        if "const" in rule:
            return rule["const"]
        if rule.get("enum"):
            return self._pick(rule["enum"])
        if choices := branches(rule):
            return self.value(self._branch(choices, depth), depth)
        return self._of_type(rule, depth)

    def _pick(self, options: Sequence[T]) -> T:
        return options[0] if self.source is None else self.source.choice(options)

    def _branch(self, choices: list[dict[str, Any]], depth: int) -> dict[str, Any]:
        if depth >= MAX_DEPTH - 2:  # ends the recursion of a schema that contains itself
            return min(choices, key=lambda each: "$ref" in each or each.get("type") in ("object", "array"))
        nulls = [each for each in choices if each.get("type") == "null"]
        prefers_null = self.source is None and not self.shown
        return self._pick(nulls if prefers_null and nulls else choices)

    def _of_type(self, rule: Mapping[str, Any], depth: int) -> Any:
        implied = "object" if "properties" in rule else "array" if "items" in rule else "string"
        match self._pick(types(rule, implied) or [implied]):
            case "object":
                return self._object(rule, depth)
            case "array":
                return self._array(rule, depth)
            case "integer" | "number" as kind:
                return self._number(rule, kind == "integer")
            case "boolean":
                return self._pick((False, True))
            case "null":
                return None
            case _:
                return self._string(rule)

    def _object(self, rule: Mapping[str, Any], depth: int) -> dict[str, Any]:
        required, properties = rule.get("required", ()), rule.get("properties", {})
        more = rule.get("additionalProperties")
        made = {}
        for name, each in properties.items():
            if name in required or (depth < MAX_DEPTH // 2 and self._pick((False, True))):
                made[name] = self.value(each, depth + 1)
        for name in required:
            if name not in made:
                made[name] = self.value(more, depth + 1)
        while len(made) < rule.get("minProperties", 0):
            made[f"key{len(made)}"] = self.value(more, depth + 1)
        return made

    def _array(self, rule: Mapping[str, Any], depth: int) -> list[Any]:
        first, items = rule.get("prefixItems", ()), rule.get("items", {})
        least = max(rule.get("minItems", 0), len(first))
        most = least if depth >= MAX_DEPTH // 2 else max(rule.get("maxItems", 3), least)
        count = self._pick(range(least, most + 1))
        schemas = [*first, *[items] * (count - len(first))]
        made: list[Any] = []
        maker = self
        for attempt in range(count + _TRIES):
            if len(made) == count:
                break
            value = maker.value(schemas[len(made)], depth + 1)
            if rule.get("uniqueItems") and value in made:
                maker = _Generator(self.root, self.source or random.Random(attempt))
            else:
                made.append(value)
        return made

    def _number(self, rule: Mapping[str, Any], whole: bool) -> int | float:
        low, high = _bounds(rule, 1 if whole else _STEP)
        step = rule.get("multipleOf", 1 if whole else None)
        if step:
            steps = range(math.ceil(low / step), math.floor(high / step) + 1)
            simplest = self.source is None and 0 in steps
            number: int | float = step * (0 if simplest else self._pick(steps))
            return number
        if high - low < _STEP:
            return sum(_bounds(rule, 0)) / 2
        if self.source is None:
            return 0 if low <= 0 <= high else low
        return max(low, min(high, round(self.source.uniform(low, high), 3)))

    def _string(self, rule: Mapping[str, Any]) -> str:
        shown = rule.get("examples") or ([rule["default"]] if isinstance(rule.get("default"), str) else [])
        if shown and ("pattern" in rule or (self.source is not None and "examples" in rule)):
            return str(self._pick(shown))
        if rule.get("format") in _FORMATS:
            return _FORMATS[rule["format"]]
        least: int = rule.get("minLength", 0)
        if self.source is None:
            return "x" * max(least, int(self.shown))
        most = min(rule.get("maxLength", 12), least + 12)
        length = self.source.randint(max(least, min(1, most)), max(least, most))
        return "".join(self.source.choices(_LETTERS, k=length))


def _bounds(rule: Mapping[str, Any], beside: float) -> tuple[float, float]:
    """The least and the highest number; an exclusive bound is moved by `beside`."""
    low = [rule["minimum"]] if "minimum" in rule else []
    low += [rule["exclusiveMinimum"] + beside] if "exclusiveMinimum" in rule else []
    high = [rule["maximum"]] if "maximum" in rule else []
    high += [rule["exclusiveMaximum"] - beside] if "exclusiveMaximum" in rule else []
    least = max(low, default=min(-10, min(high, default=10) - 20))
    return least, min(high, default=least + 20)
