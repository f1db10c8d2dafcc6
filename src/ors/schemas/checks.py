"""Checks that a tool's input schema is valid JSON Schema."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ors.schemas.structure import LISTS, NAMED, SINGLE, TYPES, target, types

_COUNTS = {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}
_NUMBERS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
_STRINGS = {"title", "description", "$id", "$schema", "format", "$comment"}
_FLAGS = {"uniqueItems", "deprecated", "readOnly", "writeOnly"}


def problems(schema: Any) -> list[str]:
    """Lists the problems of a tool's input schema; None, for a tool without input, has none."""
    if schema is None:
        return []
    if not isinstance(schema, Mapping):
        return ["it is not an object"]
    found = list(_Walk(schema).at(schema, "$"))
    if not found and "object" not in types(schema, "object"):
        found.append("it does not describe an object, so no tool call can carry it")
    return found


class _Walk:
    """Checks a schema and its subschemas; `root` is the document that `$ref` refers to."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def at(self, schema: Any, where: str) -> Iterator[str]:
        if isinstance(schema, bool):
            return
        if not isinstance(schema, Mapping):
            yield f"{where} is not a schema"
            return
        for key, rule in schema.items():
            yield from self._rule(key, rule, f"{where}.{key}")

    def _rule(self, key: str, rule: Any, where: str) -> Iterator[str]:
        if key in SINGLE:
            yield from self.at(rule, where)
        elif key in LISTS:
            yield from self._each(rule, where)
        elif key in NAMED:
            yield from self._named(rule, where)
        else:
            wrong = self._wrong(key, rule)
            if wrong:
                yield f"{where} {wrong}"

    def _each(self, rule: Any, where: str) -> Iterator[str]:
        if not isinstance(rule, list) or not rule:
            yield f"{where} is not a list of schemas"
            return
        for index, schema in enumerate(rule):
            yield from self.at(schema, f"{where}[{index}]")

    def _named(self, rule: Any, where: str) -> Iterator[str]:
        if not isinstance(rule, Mapping):
            yield f"{where} is not an object of schemas"
            return
        for name, schema in rule.items():
            yield from self.at(schema, f"{where}.{name}")

    def _wrong(self, key: str, rule: Any) -> str:
        if key == "type":
            kinds = rule if isinstance(rule, list) and rule else [rule]
            return "" if all(isinstance(k, str) and k in TYPES for k in kinds) else f"is no type: {rule!r}"
        if key == "$ref":
            return "" if self._resolves(rule) else f"leads nowhere: {rule!r}"
        if key == "pattern":
            return "" if _compiles(rule) else f"is no pattern: {rule!r}"
        if key == "required":
            fine = isinstance(rule, list) and all(isinstance(name, str) for name in rule)
            return "" if fine else "is not a list of names"
        return _wrong_value(key, rule)

    def _resolves(self, reference: Any) -> bool:
        try:
            target(self._root, reference)
        except ValueError:
            return False
        return True


def _wrong_value(key: str, rule: Any) -> str:
    if key in _COUNTS and (type(rule) is not int or rule < 0):
        return "is not a count"
    if key in _NUMBERS and (isinstance(rule, bool) or not isinstance(rule, int | float)):
        return "is not a number"
    if key == "multipleOf" and rule <= 0:
        return "is not above zero"
    if key in _STRINGS and not isinstance(rule, str):
        return "is not a string"
    if key in _FLAGS and not isinstance(rule, bool):
        return "is neither true nor false"
    if key in ("enum", "examples") and not isinstance(rule, list):
        return "is not a list"
    return ""


def _compiles(pattern: Any) -> bool:
    if isinstance(pattern, str) and re.search(r"\\[pPuk]|\(\?<[a-zA-Z]", pattern):
        return True  # a JavaScript pattern that Python cannot compile
    try:
        re.compile(pattern)
    except (re.error, TypeError):
        return False
    return True
