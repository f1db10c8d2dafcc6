"""Structure of a JSON Schema: references, subschemas, types, and whether it is valid."""

import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import reduce
from typing import Any
from urllib.parse import unquote

Schema = dict[str, Any]
# In this order, since a bool is an int in Python.
TYPES: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "array": (list,),
    "object": (Mapping,),
    "null": (type(None),),
}
"""The types of JSON Schema, and the Python types of their values."""

# Keywords whose value is a schema, a list of schemas, schemas by name.
SINGLE = frozenset(
    "items additionalProperties not contains propertyNames if then else"  # noqa: SIM905
    " unevaluatedItems unevaluatedProperties".split()
)
LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
NAMED = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
# Inlining makes definitions and `discriminator` useless; titles repeat the fields' names.
_DROPPED = frozenset({"$ref", "$defs", "definitions", "$schema", "$id", "$comment", "title", "discriminator"})


def types(schema: Mapping[str, Any], *otherwise: str) -> list[str]:
    """The types of a schema, or `otherwise` if it has none."""
    kinds = schema.get("type", otherwise)
    return [kinds] if isinstance(kinds, str) else list(kinds)


def type_of(value: Any) -> str:
    return next((name for name, classes in TYPES.items() if isinstance(value, classes)), "null")


def target(root: Mapping[str, Any], ref: Any) -> Any:
    """The schema that a `$ref` within `root` refers to. Raises ValueError if there is none."""
    document, *steps = unquote(str(ref)).split("/")
    node: Any = root if document == "#" else None
    try:
        for step in steps:
            name = step.replace("~1", "/").replace("~0", "~")
            node = node[int(name) if isinstance(node, list) else name]
    except (LookupError, TypeError, ValueError):
        node = None
    if not isinstance(node, Mapping | bool):
        raise ValueError(f"$ref {ref!r} leads nowhere in its schema")
    return node


def both(first: Any, second: Any) -> Schema:
    """Merges two schemas; if they differ in a keyword, the second wins."""
    first, second = (each if isinstance(each, Mapping) else {} for each in (first, second))
    merged = {**first, **second}
    shared = first.keys() & second.keys()
    if "properties" in shared:
        one, other = first["properties"], second["properties"]
        merged["properties"] = {**one, **{n: both(one.get(n), each) for n, each in other.items()}}
    if "required" in shared:
        merged["required"] = list(dict.fromkeys([*first["required"], *second["required"]]))
    if "description" in shared:
        merged["description"] = "\n".join(dict.fromkeys([first["description"], second["description"]]))
    return merged


def branches(schema: Mapping[str, Any]) -> list[Schema]:
    """The branches of the first `anyOf` or `oneOf`, each merged with the keywords beside it."""
    key = next((key for key in ("anyOf", "oneOf") if key in schema), None)
    beside = {k: v for k, v in schema.items() if k != key}
    return [both(beside, each) for each in schema[key]] if key else []


def flattened(schema: Any, root: Mapping[str, Any], steps: int = 8) -> Mapping[str, Any]:
    """Merges a schema with its `$ref` and `allOf`; broken and circular references are ignored."""
    if not isinstance(schema, Mapping):
        return {}
    beside = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
    if not steps or len(beside) == len(schema):
        return beside
    found = "$ref" in schema and _resolves(root, schema["$ref"])
    targets = [target(root, schema["$ref"])] if found else []
    parts = [*targets, beside, *(schema.get("allOf") or ())]
    return reduce(both, [flattened(part, root, steps - 1) for part in parts])


def walk(schema: Mapping[str, Any], visit: Callable[[Mapping[str, Any]], Schema]) -> Schema:
    """Copies a schema, with `visit` applied to every subschema; data such as defaults stays as it is."""

    def visited(value: Any) -> Any:
        return visit(value) if isinstance(value, Mapping) else {} if value else {"not": {}}

    copied: Schema = {}
    for key, value in schema.items():
        if key in NAMED and isinstance(value, Mapping):
            copied[key] = {name: visited(each) for name, each in value.items()}
        elif key in SINGLE | LISTS and isinstance(value, list):
            copied[key] = [visited(each) for each in value]
        elif key in SINGLE and isinstance(value, Mapping):
            copied[key] = visit(value)
        else:
            copied[key] = deepcopy(value)
    return copied


def inlined(schema: Mapping[str, Any]) -> Schema:
    """A copy without references, `allOf` and titles. Raises ValueError if a `$ref` leads nowhere."""
    return _Inliner(schema).inline(schema)


@dataclass
class _Inliner:
    """Replaces the references of one schema by their targets.

    A reference inside its own expansion, or after the first thousand (definitions that use each other twice
    double at every step), becomes the bare type of its target, or any type if that has none.
    """

    root: Mapping[str, Any]
    left: int = 1000

    def inline(self, schema: Mapping[str, Any], within: tuple[str, ...] = ("#",)) -> Schema:
        kept = {key: value for key, value in schema.items() if key not in _DROPPED}
        flat = walk(kept, lambda each: self.inline(each, within))
        targets = [self._follow(schema["$ref"], within)] if "$ref" in schema else []
        return reduce(both, [*targets, *flat.pop("allOf", [])], flat)

    def _follow(self, ref: Any, within: tuple[str, ...]) -> Schema:
        found = target(self.root, ref)
        if isinstance(found, bool):
            return {} if found else {"not": {}}
        if ref not in within and self.left:
            self.left -= 1
            return self.inline(found, (*within, ref))
        name = "the whole" if ref == "#" else ref.rpartition("/")[2]
        kind = {"type": found["type"]} if "type" in found else {}
        return {**kind, "description": f"The same as {name}, described above."}


def _is_number(rule: Any) -> bool:
    return isinstance(rule, int | float) and not isinstance(rule, bool)


def _is_type(rule: Any) -> bool:
    return all(
        isinstance(kind, str) and kind in TYPES for kind in (rule if isinstance(rule, list) else [rule])
    )


def _is_pattern(rule: Any) -> bool:
    if isinstance(rule, str) and re.search(r"\\[pPuk]|\(\?<[a-zA-Z]", rule):
        return True  # a JavaScript pattern that Python cannot compile
    try:
        re.compile(rule)
    except (re.error, TypeError):
        return False
    return True


_CHECKS: list[tuple[str, Callable[[Any], bool], str]] = [
    ("type", _is_type, "a JSON Schema type"),
    ("pattern", _is_pattern, "a valid pattern"),
    (
        "required",
        lambda rule: isinstance(rule, list) and all(isinstance(n, str) for n in rule),
        "a list of names",
    ),
    ("enum examples", lambda rule: isinstance(rule, list), "a list"),
    ("uniqueItems deprecated", lambda rule: isinstance(rule, bool), "true or false"),
    ("title description $id $schema format", lambda rule: isinstance(rule, str), "a string"),
    ("minimum maximum exclusiveMinimum exclusiveMaximum", _is_number, "a number"),
    ("multipleOf", lambda rule: _is_number(rule) and rule > 0, "a number above zero"),
    (
        "minLength maxLength minItems maxItems minProperties maxProperties",
        lambda rule: type(rule) is int and rule >= 0,
        "a count",
    ),
]
_RULES = {key: (fits, what) for keys, fits, what in _CHECKS for key in keys.split()}
"""What the value of a keyword must be."""
_RULES |= dict.fromkeys(LISTS, (lambda rule: isinstance(rule, list) and bool(rule), "a list of schemas"))
_RULES |= dict.fromkeys(NAMED, (lambda rule: isinstance(rule, Mapping), "an object of schemas"))


def problems(schema: Any) -> list[str]:
    """Lists the problems of a tool's input schema; None, for a tool without input, has none."""
    if schema is None:
        return []
    if not isinstance(schema, Mapping):
        return ["it is not an object"]
    found = list(_problems(schema, "$", schema))
    if not found and "object" not in types(schema, "object"):
        found.append("it does not describe an object, so no tool call can carry it")
    return found


def _problems(schema: Any, where: str, root: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        yield f"{where} is not a schema"
        return
    for key, rule in schema.items():
        place = f"{where}.{key}"
        if key in _RULES and not _RULES[key][0](rule):
            yield f"{place} is not {_RULES[key][1]}: {rule!r}"
        elif key == "$ref" and not _resolves(root, rule):
            yield f"{place} leads nowhere: {rule!r}"
        elif key in SINGLE:
            yield from _problems(rule, place, root)
        elif key in LISTS:
            for index, each in enumerate(rule):
                yield from _problems(each, f"{place}[{index}]", root)
        elif key in NAMED:
            for name, each in rule.items():
                yield from _problems(each, f"{place}.{name}", root)


def _resolves(root: Mapping[str, Any], ref: Any) -> bool:
    try:
        target(root, ref)
    except ValueError:
        return False
    return True
