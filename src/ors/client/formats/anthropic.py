"""Anthropic: the Messages API."""

import re
from typing import Any

from ors.client.formats.base import Format, RawCall, typed_call
from ors.client.formats.schemas import completed
from ors.schemas.structure import Schema

_PROPERTY_NAMES = "[a-zA-Z0-9_.-]{1,64}"


def _spec(named: Schema, schema: Schema) -> Schema:
    if wrong := [name for name in schema.get("properties", ()) if not re.fullmatch(_PROPERTY_NAMES, name)]:
        # The API would refuse the whole request, with this message.
        raise ValueError(f"property keys should match pattern '^{_PROPERTY_NAMES}$', not {', '.join(wrong)}")
    return {"type": "custom", **named, "input_schema": completed(schema)}


def _call(call: Any) -> RawCall | None:
    return typed_call(call, "tool_use", arguments="input", id="id")


# The rule for names is from the API's error message.
ANTHROPIC = Format("[a-zA-Z0-9_-]{1,128}", _spec, _call)
