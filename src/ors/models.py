"""Model: a model of a provider, asked by HTTP."""

import asyncio
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from time import monotonic
from typing import Any, assert_never
from urllib.parse import urlsplit

from ors._json import dumps, loads
from ors._masking import MASK, hidden, masked
from ors.client import Options, ToolInvocation, Transport, http_transport
from ors.client.requests.retry import Retry, retry_after
from ors.client.requests.server import BASE_HEADERS, read_body
from ors.errors import ResponseError, TransportError, Unavailable
from ors.providers import MODEL_NAMES, Provider, api_of
from ors.providers.base import JSON, CallResult, ModelAPI, ModelOptions, ModelRequest, Native
from ors.providers.convert import convert_reply, convert_tools
from ors.providers.errors import ModelError, failure, repeatable, retry_delay, status_inside
from ors.providers.messages import AgentMessage, Message, SystemMessage, ToolMessage, Usage, UserMessage
from ors.providers.parts import merged
from ors.types import Block, Blocks, ImageBlock, TextBlock, ToolSpec

MAX_ANSWER_BYTES = 64 * 2**20
SHORTEST_KEY = 8
"""Local servers get keys such as "EMPTY" or "ollama", which are words of other texts too."""
_LEAST_SHOWN, _MOST_SHOWN = 3, 64
"""Characters of a key that tell it from other words, and that are looked for."""


class Model:
    """A model of a provider, or of a server that speaks its API. Close it after use.

    `base_url` and `api_key` come from the provider's usual environment variables if they are not given.

    Raises:
        ValueError: the provider is unknown, has no such option, or needs a key.
    """

    def __init__(
        self,
        provider: str,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        **options: Any,
    ) -> None:
        if provider not in MODEL_NAMES:
            raise ValueError(f"Unknown provider {provider!r}; use one of {', '.join(MODEL_NAMES)}")
        self.provider = provider
        self.model = model
        self.options = ModelOptions(**options)
        self._format = MODEL_NAMES[provider]
        self._api = api = api_of(self._format)
        for name in api.unsupported:
            if getattr(self.options, name) not in (None, ()):
                raise ValueError(f"{provider} has no option {name!r}")
        url, key = address(provider, api, base_url, api_key)
        self._official = url.rstrip("/") == api.base_url
        self._where = _host(url)
        self._transport: Transport = http_transport(url)
        self._headers = {**BASE_HEADERS, **api.fixed_headers, **(api.key_headers(key) if key else {})}
        self._key = key if len(key) >= SHORTEST_KEY else ""
        self._shown = _shown_parts(key)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.provider}:{self.model}>"

    async def answer(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
        *,
        options: ModelOptions | None = None,
        before_attempt: Callable[[], None] | None = None,
    ) -> AgentMessage:
        """Asks the model for its next message. `before_attempt` may raise, and so forbid a request.

        Raises:
            ContextExceeded: the conversation is too long.
            ModelError: the provider failed.
            ValueError: the provider's rules forbid the name or the input of a tool.
        """
        began = monotonic()
        request = self._request(messages, tools, options or self.options)
        body = merged(self._api.write_body(request), self.options.extra)
        answer = await self._ask(dumps(body), before_attempt)
        try:
            reply = self._api.read_answer(answer)
        except ValueError as error:
            raise ModelError(f"the answer from {self!r} is not valid: {error}") from None
        return replace(reply, usage=self._priced(reply), seconds=monotonic() - began)

    async def close(self) -> None:
        await self._transport.close()

    def _request(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], options: ModelOptions
    ) -> ModelRequest:
        return ModelRequest(
            self.model,
            "\n\n".join(message.text for message in messages if isinstance(message, SystemMessage)),
            _provider_messages(messages, self._format, images=self.options.images),
            convert_tools(tools, self._format),
            options,
            self._official,
        )

    def _priced(self, reply: AgentMessage) -> Usage:
        prices, usage = self.options.prices, reply.usage
        # A request has input, and a reply with anything in it has output.
        if not usage.input_tokens or not (usage.output_tokens or not (reply.text or reply.calls)):
            return replace(usage, unknown=1)
        return usage if prices is None else replace(usage, cost=prices.cost(usage))

    # ── Requests, and repeating those that may succeed later ──

    async def _ask(self, data: bytes, before_attempt: Callable[[], None] | None) -> Any:
        async def attempt() -> Any:
            if before_attempt is not None:
                before_attempt()
            return await self._attempt(data)

        options = self.options
        longest, limit = options.longest_pause_seconds, options.retries
        pauses = Options(backoff_seconds=options.backoff_seconds, backoff_limit_seconds=longest)
        # Each attempt has a time limit of its own: this one only has to be longer than all of them.
        seconds = (limit + 1) * (options.request_seconds + 2 * longest)
        try:
            return await Retry(pauses, limit=limit, seconds=seconds).run(attempt)
        except _RetryableError as last:
            raise last.error from None

    async def _attempt(self, data: bytes) -> Any:
        """One request, and its answer.

        Raises:
            _RetryableError: the same request may succeed later. ModelError: it will not.
        """
        seconds = self.options.request_seconds
        try:
            async with asyncio.timeout(seconds):
                response = await self._transport.send("POST", self._api.path(self.model), self._headers, data)
                body = await read_body(response, MAX_ANSWER_BYTES)
        except TimeoutError:
            raise _RetryableError(ModelError(f"{self._where} did not answer within {seconds:g} s")) from None
        except TransportError as error:
            raise _RetryableError(ModelError(f"no answer from {self._where}: {error}")) from None
        except ResponseError:
            raise ModelError(f"the answer from {self._where} is over {MAX_ANSWER_BYTES} bytes") from None
        return self._read(response.status, response.headers, body)

    def _read(self, status: int, headers: Mapping[str, str], body: bytes) -> Any:
        if 200 <= status < 300:
            try:
                answer = loads(body)
            except ValueError:
                error = ModelError(f"the answer from {self._where} is not JSON", status=status)
                raise _RetryableError(error) from None
            inside = status_inside(answer)
            if inside is None:
                # The whole at once: most answers have no key in them, and a search has a cost of its own.
                told = dumps(answer).decode() if self._key else ""
                return answer if self._hidden(told) == told else masked(answer, self._hidden)
            status = inside
        error = failure(status, body, self._where, self._hidden_parts)
        asked = retry_after(headers) if headers.get("Retry-After") else retry_delay(body)
        if not repeatable(status, body) or (asked or 0.0) > self.options.longest_pause_seconds:
            raise error
        raise _RetryableError(error, asked)

    def _hidden(self, text: str) -> str:
        return hidden(self._shown.sub(MASK, text), [self._key])

    def _hidden_parts(self, text: str) -> str:
        """An error's text without the key, or any part of it that tells something."""
        parts = (self._key[n : n + SHORTEST_KEY] for n in range(len(self._key) - SHORTEST_KEY + 1))
        return hidden(self._hidden(text), parts) if self._key else text


def address(provider: str, api: ModelAPI, base_url: str | None, api_key: str | None) -> tuple[str, str]:
    """The URL and the key of a provider, from its usual variables if they are not given."""
    names, url = api.key_variables, base_url or os.environ.get(api.url_variable) or api.base_url
    key = (api_key or next(filter(None, map(os.environ.get, names)), "")).strip()
    if not key and url.rstrip("/") == api.base_url:
        how = f"set {' or '.join(names)}, or in Python the argument api_key"
        raise ValueError(f"{provider} needs an API key: {how}")
    if not (key.isascii() and key.isprintable()):
        raise ValueError(f"The API key for {provider} contains characters that no key has")
    return url, key


# ── The conversation in the format of a provider ──


def _provider_messages(messages: Sequence[Message], format: Provider, *, images: bool) -> list[JSON]:
    """All messages but those of the system; without `images`, text placeholders replace them."""
    api, made = api_of(format), list[JSON]()
    # The results of one reply belong together.
    for _, group in groupby(messages, lambda message: message.role):
        results: list[CallResult] = []
        for message in group:
            match message:
                case SystemMessage():
                    pass
                case UserMessage():
                    made += api.write_prompt(_shown(message.blocks, images))
                case AgentMessage():
                    made += _replied(message, format)
                case ToolMessage():
                    call = ToolInvocation(message.name, {}, message.call)
                    results.append(CallResult(call, _shown(message.blocks, images), message.ok))
                case _:
                    assert_never(message)
        made += api.write_results(results)
    return made


def _replied(message: AgentMessage, format: Provider) -> list[JSON]:
    native = message.native
    if isinstance(native, Native) and native.format == format:
        return native.messages
    return convert_reply(message.text, message.calls, format)


def _shown(blocks: Blocks, images: bool) -> Blocks:
    return blocks if images else [_placeholder(block) for block in blocks]


def _placeholder(block: Block) -> Block:
    match block:
        case TextBlock():
            return block
        case ImageBlock():
            size = len(block.data) * 3 // 4
            return TextBlock(text=f"[an image of type {block.mimeType}, {size} bytes, which you cannot see]")
        case _:
            assert_never(block)


class _RetryableError(Unavailable):
    """A request failed that may succeed later."""

    def __init__(self, error: ModelError, retry_after: float | None = None) -> None:
        super().__init__(retry_after=retry_after)
        self.error = error


def _shown_parts(key: str) -> re.Pattern[str]:
    """Finds a key whose middle is left out, as providers show it: `sk-ab***yz`, `sk-ab...`, `***wxyz`."""
    ends = range(min(len(key), _MOST_SHOWN), 0, -1)
    head = "|".join(re.escape(key[:n]) for n in ends if n >= _LEAST_SHOWN)
    tails = [re.escape(key[-n:]) for n in ends]
    left_out = r"(?:\*+|\.{2,}|…+|•+|[xX]{4,})"
    longer = "|".join(tails[: 1 - _LEAST_SHOWN])
    return re.compile(
        rf"(?<![^\W_])(?:{head}){left_out}(?:{'|'.join(tails)})?|{left_out}(?:{longer})(?![^\W_])"
    )


def _host(base_url: str) -> str:
    try:
        parts = urlsplit(base_url)
        port = parts.port
    except ValueError:
        raise ValueError("base_url is not a valid URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("base_url must be like https://host/v1")
    if parts.query or parts.fragment:
        raise ValueError("base_url must end with its path: put parameters of the query elsewhere")
    return parts.hostname + (f":{port}" if port else "")
