"""Rules for input schemas that several providers share."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ors._json import dumps
from ors.schemas.structure import Schema, branches, types, walk

# "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'const'/'not' at the top
# level" (OpenAI); Anthropic refuses the first three as well.
_NOT_AT_ROOT = frozenset({"anyOf", "oneOf", "enum", "const", "not"})


def object_schema(schema: Mapping[str, Any]) -> Schema:
    """The schema of a tool's whole input: one object, with alternatives only inside its properties.

    Raises:
        ValueError: it describes something else.
    """
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
