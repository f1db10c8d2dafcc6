"""Checks requests to model providers by the types that the providers publish.

Their packages take seconds to import, so they are imported where they are used.
"""

import json
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from pydantic import TypeAdapter

from ors.client import Provider

JSON = dict[str, Any]


def problems(format: Provider, body: Any) -> list[str]:
    """What is wrong with the body of a request; also keys that the provider does not know."""
    if format == "google":
        return _google_problems(body)
    return [f"{list(each.path)}: {each.message[:300]}" for each in _validator(format).iter_errors(body)]


def message_problems(format: Provider, messages: list[JSON]) -> list[str]:
    """What is wrong with messages."""
    key = {"openai": "input", "google": "contents"}.get(format, "messages")
    rest: JSON = {} if format == "google" else {"model": "some-model"}
    if format == "anthropic":
        rest["max_tokens"] = 100
    return problems(format, rest | {key: messages})


@cache
def _validator(format: Provider) -> Any:
    # The types are TypedDicts with lazy iterables: their JSON Schema checks all of it.
    schema = TypeAdapter(_request_type(format)).json_schema()
    for each in [schema, *schema.get("$defs", {}).values()]:
        if "properties" in each and not each.get("additionalProperties"):
            each["additionalProperties"] = False
    if format == "anthropic":  # of the version 2023-06-01; these types are of 2026-10-21
        schema["properties"] |= {"temperature": {"type": "number"}, "top_p": {"type": "number"}}
    if format == "openrouter":  # speaks Chat Completions, and documents some keys of its own
        schema["properties"] |= {"reasoning": {"type": "object"}}
    if format in ("openrouter", "openai-chat"):
        reply = schema["$defs"]["ChatCompletionAssistantMessageParam"]["properties"]
        reply |= {key: {} for key in ("reasoning", "reasoning_content", "reasoning_details")}
    return Draft202012Validator(schema)


def _request_type(format: Provider) -> Any:
    if format == "anthropic":
        from anthropic.types.message_create_params import MessageCreateParamsNonStreaming

        return MessageCreateParamsNonStreaming
    if format == "openai":
        from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming

        return ResponseCreateParamsNonStreaming
    from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming

    return CompletionCreateParamsNonStreaming


def _google_problems(body: JSON) -> list[str]:
    from google.genai import types

    kinds: dict[str, Any] = {
        "contents": list[types.Content],
        "systemInstruction": types.Content,
        "tools": list[types.Tool],
        "generationConfig": types.GenerationConfig,
    }
    found = [f"unknown key {key}" for key in body if key not in kinds]
    for key, kind in kinds.items():
        if key in body:
            try:
                TypeAdapter(kind).validate_json(json.dumps(body[key]))
            except ValueError as error:
                found.append(f"{key}: {error}")
    return found
