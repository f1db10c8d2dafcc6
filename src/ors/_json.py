"""JSON encoding and decoding that keeps every value exact, and what is wrong with a value."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any, get_args

import orjson
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json, to_jsonable_python

from ors.types import Block, ListToolsOutput, RunToolError, Split, TerminalToolSpec, ToolOutput, ToolSpec

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_OURS = {*get_args(Block), ToolOutput, ToolSpec, TerminalToolSpec, ListToolsOutput, RunToolError, Split}

_ARRAY = "('json-or-python["
"""Beginning of pydantic's name for a JSON array, in a tuple."""


def dumps(value: Any) -> bytes:
    """Encodes `value`. Raises TypeError, ValueError or RecursionError if JSON cannot express it."""
    try:
        # Without OPT_SERIALIZE_NUMPY, which imports numpy at the first model: 90 ms and 12 MB.
        return orjson.dumps(value, default=_plain)
    except TypeError:
        # For what orjson refuses and JSON allows: lone surrogates, integers over 64 bits, keys that are not
        # strings, nesting over 254 levels. Slow, but rare.
        return json.dumps(_cleaned(value), separators=(",", ":"), default=_plain, allow_nan=False).encode()


def _cleaned(value: Any) -> Any:
    if type(value) in _OURS:
        return _cleaned(value.__dict__)
    if isinstance(value, BaseModel):
        return _cleaned(to_jsonable_python(value, inf_nan_mode="null"))
    if isinstance(value, Mapping):
        return {key: _cleaned(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_cleaned(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain(value: Any) -> Any:
    # The `__dict__` of our own models, not model_dump(): orjson needs no second pass (0.3 against 1.9 µs).
    # Models of authors may exclude fields, or have serializers of their own.
    if type(value) in _OURS:
        return value.__dict__
    if type(value).__module__ == "numpy":
        return value.tolist()
    return to_jsonable_python(value, inf_nan_mode="null")


def unencodable(row: Mapping[str, Any]) -> list[str]:
    """Names of the values that JSON cannot express."""
    found = []
    for name, value in row.items():
        try:
            dumps(value)
        except (TypeError, ValueError, RecursionError):
            found.append(name)
    return found


def loads(data: bytes | str) -> Any:
    """Decodes a JSON text. Raises ValueError if it is none, or nested too deeply."""
    try:
        # Not orjson: this is as fast, and keeps integers over 64 bits exact.
        return from_json(data, allow_inf_nan=False)
    except (ValueError, TypeError):  # a text with half a character in it is a TypeError there
        return _loads_surrogates(data)


def _loads_surrogates(data: bytes | str) -> Any:
    # Escaped lone surrogates are valid JSON, but only the standard library reads them. It also reads what is
    # nested more deeply, or not UTF-8, so the rest must be valid without them.
    try:
        text = data if isinstance(data, bytes) else data.encode()
        if not _SURROGATE.search(text):
            raise ValueError
        from_json(_SURROGATE.sub(rb"\\u0000", text), allow_inf_nan=False)
        return json.loads(data)
    except ValueError:
        raise ValueError("not valid JSON, or nested too deeply") from None


def problems(error: ValidationError, root: str = "") -> str:
    """Lists the invalid fields and what is wrong with each; `root` is the name of the whole value.

    Values are left out: they may be secrets.
    """
    wrong = error.errors(include_url=False, include_context=False, include_input=False)
    # A value that is no JSON fits none of its kinds, and pydantic names each of them.
    values = {problem["loc"][:-1] for problem in wrong if str(problem["loc"][-1:]).startswith(_ARRAY)}
    found: dict[str, None] = {}
    for problem in wrong:
        place, text = problem["loc"], problem["msg"].removeprefix("Value error, ")
        if place[:-1] in values:
            place, text = place[:-1], "JSON cannot express this value"
        where = ".".join(map(str, place)) or root
        found[f"{where}: {text}" if where else text] = None
    return "; ".join(found)
