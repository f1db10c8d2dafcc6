"""OpenAI: the Responses API and Chat Completions."""

from typing import Any

from ors.client.formats.base import Format, RawCall, field, typed_call
from ors.client.formats.schemas import completed
from ors.schemas.structure import Schema

_NAMES = "[a-zA-Z0-9_-]{1,64}"  # as openai's FunctionDefinition says


def _responses_spec(named: Schema, schema: Schema) -> Schema:
    # Without `strict`, the Responses API would require every optional field
    # (developers.openai.com/api/docs/guides/function-calling, "Strict mode").
    return {"type": "function", **named, "parameters": completed(schema), "strict": False}


def _responses_call(call: Any) -> RawCall | None:
    return typed_call(call, "function_call", arguments="arguments", id="call_id")


def _chat_spec(named: Schema, schema: Schema) -> Schema:
    return {"type": "function", "function": {**named, "parameters": completed(schema)}}


def _chat_call(call: Any) -> RawCall | None:
    function = field(call, "function")
    return function and (field(function, "name"), field(function, "arguments"), field(call, "id"))


RESPONSES = Format(_NAMES, _responses_spec, _responses_call)
CHAT = Format(_NAMES, _chat_spec, _chat_call)
