"""Model providers for tests: real HTTP, requests checked by the provider's types, answers by its models."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from ors.client import Provider
from tests.support.provider_types import problems
from tests.support.scripted_server import Request, Scripted, scripted

JSON = dict[str, Any]
Call = tuple[str, str, str]
"""Id, name and arguments of a call."""


class Answers(Protocol):
    """How one provider answers."""

    provider: str
    format: Provider
    prefix: str
    path: str
    key_header: str
    context_errors: Sequence[JSON]

    def __call__(
        self, text: str = "", calls: Sequence[Call] = (), *, thought: str = "", stop: str = "stop"
    ) -> JSON: ...


@dataclass
class CheckedScript(Scripted):
    """Notes what is wrong with each request."""

    format: Provider = "openai-chat"
    faults: list[str] = field(default_factory=list)

    async def reply(self, request: Request, writer: Any) -> bool:
        self.faults += problems(self.format, request.json())
        return await super().reply(request, writer)

    def body(self, number: int = -1) -> JSON:
        found: JSON = self.requests[number].json()
        return found


@asynccontextmanager
async def providing(answers: Answers) -> AsyncIterator[CheckedScript]:
    """A provider, whose requests must all have been valid."""
    script = CheckedScript(format=answers.format)
    async with scripted(script=script):
        yield script
    assert script.faults == []


class ChatAnswers:
    provider = "openai"
    format: Provider = "openai-chat"
    prefix = "/v1"
    path = "/v1/chat/completions"
    key_header = "authorization"
    context_errors: Sequence[JSON] = [
        {
            "error": {
                "message": "This model's maximum context length is 128000 tokens. However, your messages"
                " resulted in 130011 tokens. Please reduce the length of the messages.",
                "type": "invalid_request_error",
                "param": "messages",
                "code": "context_length_exceeded",
            }
        },
        {  # vLLM
            "error": {
                "message": "The decoder prompt (length 5000) is longer than the maximum model length of 4096."
                " Make sure that `max_model_len` is no smaller than the number of text tokens.",
                "type": "BadRequestError",
                "param": None,
                "code": 400,
            }
        },
        {  # SGLang, and older vLLM
            "object": "error",
            "message": "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
        {  # llama.cpp
            "error": {
                "code": 400,
                "message": "the request exceeds the available context size, try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 5000,
                "n_ctx": 4096,
            }
        },
    ]

    def __call__(
        self, text: str = "", calls: Sequence[Call] = (), *, thought: str = "", stop: str = "stop"
    ) -> JSON:
        from openai.types.chat import ChatCompletion

        listed = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for id, name, arguments in calls
        ]
        said = {"refusal": text, "content": None} if stop == "refusal" else {"content": text or None}
        message = (
            {"role": "assistant", **said} | ({"tool_calls": listed} if listed else {}) | self.more(thought)
        )
        reason = "length" if stop == "length" else "tool_calls" if listed else "stop"
        made = ChatCompletion.model_validate(
            {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "created": 1,
                "model": "some-model",
                "choices": [{"index": 0, "finish_reason": reason, "message": message}],
                "usage": {
                    "prompt_tokens": 1000,
                    "completion_tokens": 100,
                    "total_tokens": 1100,
                    "prompt_tokens_details": {"cached_tokens": 800},
                    "completion_tokens_details": {"reasoning_tokens": 60},
                },
            }
        )
        return made.model_dump(mode="json")

    def more(self, thought: str) -> JSON:
        return {"reasoning_content": thought} if thought else {}


class OpenRouterAnswers(ChatAnswers):
    provider = "openrouter"
    format: Provider = "openrouter"
    prefix = "/api/v1"
    path = "/api/v1/chat/completions"
    context_errors: Sequence[JSON] = [
        {
            "error": {
                "message": "This endpoint's maximum context length is 131072 tokens. However, you requested"
                " about 140000 tokens (139000 of text input, 1000 in the output).",
                "code": 400,
                "metadata": {"provider_name": None},
            }
        }
    ]

    def more(self, thought: str) -> JSON:
        detail = {"type": "reasoning.encrypted", "data": "c2VjcmV0", "id": "r1", "format": "x-v1", "index": 0}
        return {"reasoning": thought, "reasoning_details": [detail]} if thought else {}


class ResponsesAnswers:
    provider = "openai-responses"
    format: Provider = "openai"
    prefix = "/v1"
    path = "/v1/responses"
    key_header = "authorization"
    context_errors: Sequence[JSON] = [
        {
            "error": {
                "message": "Your input exceeds the context window of this model. Please adjust your input and"
                " try again.",
                "type": "invalid_request_error",
                "param": "input",
                "code": "context_length_exceeded",
            }
        }
    ]

    def __call__(
        self, text: str = "", calls: Sequence[Call] = (), *, thought: str = "", stop: str = "stop"
    ) -> JSON:
        from openai.types.responses import Response

        made = Response.model_validate(
            {
                "id": "resp_1",
                "object": "response",
                "created_at": 1,
                "model": "some-model",
                "status": "incomplete" if stop == "length" else "completed",
                "incomplete_details": {"reason": "max_output_tokens"} if stop == "length" else None,
                "output": self.output(text, calls, thought, stop),
                "parallel_tool_calls": True,
                "tool_choice": "auto",
                "tools": [],
                "usage": {
                    "input_tokens": 1000,
                    "output_tokens": 100,
                    "total_tokens": 1100,
                    "input_tokens_details": {"cached_tokens": 800, "cache_write_tokens": 0},
                    "output_tokens_details": {"reasoning_tokens": 60},
                },
            }
        )
        return made.model_dump(mode="json", exclude_none=True)

    def output(self, text: str, calls: Sequence[Call], thought: str, stop: str) -> list[JSON]:
        summary = [{"type": "summary_text", "text": thought}]
        made: list[JSON] = []
        if thought:
            made.append(
                {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "c2VjcmV0"}
            )
        if text:
            part: JSON = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
            said = {"type": "refusal", "refusal": text} if stop == "refusal" else part
            status = "completed"
            made.append(
                {"type": "message", "id": "msg_1", "role": "assistant", "status": status, "content": [said]}
            )
        return made + [
            {
                "type": "function_call",
                "id": f"fc_{id}",
                "call_id": id,
                "name": name,
                "arguments": arguments,
                "status": "completed",
            }
            for id, name, arguments in calls
        ]


class AnthropicAnswers:
    provider = "anthropic"
    format: Provider = "anthropic"
    prefix = ""
    path = "/v1/messages"
    key_header = "x-api-key"
    context_errors: Sequence[JSON] = [
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "prompt is too long: 210000 tokens > 200000 maximum",
            },
            "request_id": "req_1",
        },
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000,"
                " decrease input length or `max_tokens` and try again",
            },
        },
    ]

    def __call__(
        self, text: str = "", calls: Sequence[Call] = (), *, thought: str = "", stop: str = "stop"
    ) -> JSON:
        from anthropic.types import Message

        content: list[JSON] = []
        if thought:
            content.append({"type": "thinking", "thinking": thought, "signature": "c2VjcmV0"})
            content.append({"type": "redacted_thinking", "data": "aGlkZGVu"})
        content += [{"type": "text", "text": text}] if text else []
        content += [
            {"type": "tool_use", "id": id, "name": name, "input": json.loads(arguments)}
            for id, name, arguments in calls
        ]
        reasons = {"length": "max_tokens", "refusal": "refusal", "stop": "tool_use" if calls else "end_turn"}
        made = Message.model_validate(
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": "some-model",
                "content": content,
                "stop_reason": reasons[stop],
                "stop_sequence": None,
                "usage": {
                    "input_tokens": 150,
                    "cache_creation_input_tokens": 50,
                    "cache_read_input_tokens": 800,
                    "output_tokens": 100,
                    "output_tokens_details": {"thinking_tokens": 60},
                },
            }
        )
        return made.model_dump(mode="json", exclude_none=True)


class GoogleAnswers:
    provider = "google"
    format: Provider = "google"
    prefix = ""
    path = "/v1beta/models/some-model:generateContent"
    key_header = "x-goog-api-key"
    context_errors: Sequence[JSON] = [
        {
            "error": {
                "code": 400,
                "message": "The input token count (1200000) exceeds the maximum number of tokens allowed"
                " (1048576).",
                "status": "INVALID_ARGUMENT",
            }
        }
    ]

    def __call__(
        self, text: str = "", calls: Sequence[Call] = (), *, thought: str = "", stop: str = "stop"
    ) -> JSON:
        from google.genai.types import GenerateContentResponse

        parts: list[JSON] = [{"text": thought, "thought": True}] if thought else []
        parts += [{"text": text}] if text else []
        for number, (id, name, arguments) in enumerate(calls):
            call: JSON = {"functionCall": {"id": id, "name": name, "args": json.loads(arguments)}}
            parts.append(call | ({"thoughtSignature": "c2VjcmV0"} if thought and not number else {}))
        reasons = {"length": "MAX_TOKENS", "refusal": "PROHIBITED_CONTENT", "stop": "STOP"}
        made = GenerateContentResponse.model_validate_json(
            json.dumps(
                {
                    "candidates": [
                        {
                            "index": 0,
                            "content": {"role": "model", "parts": parts},
                            "finishReason": reasons[stop],
                        }
                    ],
                    "usageMetadata": {
                        "promptTokenCount": 1000,
                        "cachedContentTokenCount": 800,
                        "candidatesTokenCount": 40,
                        "thoughtsTokenCount": 60,
                        "totalTokenCount": 1100,
                    },
                    "modelVersion": "some-model",
                    "responseId": "r1",
                }
            )
        )
        return made.model_dump(mode="json", by_alias=True, exclude_none=True)


ALL: tuple[Answers, ...] = (
    ChatAnswers(),
    OpenRouterAnswers(),
    ResponsesAnswers(),
    AnthropicAnswers(),
    GoogleAnswers(),
)
