"""JSON, bytes to values and back, with nothing lost on the way."""

import json
import math
from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import BaseModel
from pydantic_core import from_json, to_jsonable_python

from ors.types import (
    ImageBlock,
    ListToolsOutput,
    RunToolError,
    Split,
    TerminalToolSpec,
    TextBlock,
    ToolOutput,
    ToolSpec,
)

__all__ = ["dumps", "loads"]

_OURS = {TextBlock, ImageBlock, ToolOutput, ToolSpec, TerminalToolSpec, ListToolsOutput, RunToolError, Split}


def dumps(value: Any) -> bytes:
    """`value` as compact JSON.

    Raises:
        TypeError, ValueError, RecursionError: it has no form in JSON.
    """
    try:
        # Without its option for numpy, which imports numpy as soon as it meets a model: 90 ms and 12 MB.
        return orjson.dumps(value, default=_plain)
    except TypeError:
        # What orjson refuses and JSON can say: lone surrogates, integers over 64 bits, keys that are
        # not strings, nesting over 254 levels. Rare, so it may cost.
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
    # Our own models' dict, not a dump of it: orjson walks it without a second pass (0.3 against 1.9 µs).
    # An author's models may hide fields, or write them in their own way.
    if type(value) in _OURS:
        return value.__dict__
    if type(value).__module__ == "numpy":
        return value.tolist()
    return to_jsonable_python(value, inf_nan_mode="null")


def loads(data: bytes | str) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is not JSON, or nested too deeply.
    """
    try:
        # Not orjson: as fast, and integers over 64 bits stay exact.
        return from_json(data, allow_inf_nan=False)
    except ValueError:
        return _loads_by_the_letter(data)


def _loads_by_the_letter(data: bytes | str) -> Any:
    # Escaped lone surrogates are JSON, which only the standard library reads.
    if (b"\\u" if isinstance(data, bytes) else "\\u") not in data:  # type: ignore[operator]
        raise ValueError("not valid JSON")
    try:
        return json.loads(data, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None
    except ValueError:
        raise ValueError("not valid JSON") from None


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")
