"""Model: a model of a provider, asked by HTTP."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from time import monotonic
from typing import Any, assert_never

from ors.client import ToolInvocation
from ors.errors import ToolCallError
from ors.models.endpoint import ProviderEndpoint
from ors.providers import MODEL_NAMES, Provider, api_of
from ors.providers.base import JSON, ModelAPI, ModelOptions, ModelRequest, Native
from ors.providers.convert import convert_prompt, convert_reply, convert_results, convert_tools
from ors.providers.errors import ModelError
from ors.providers.messages import AgentMessage, Message, SystemMessage, ToolMessage, Usage, UserMessage
from ors.providers.parts import merged
from ors.types import Block, Blocks, ImageBlock, TextBlock, ToolOutput, ToolSpec, text_and_images


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
        _check_options(provider, api, self.options)
        url, key = address(provider, api, base_url, api_key)
        self._official = url.rstrip("/") == api.base_url
        headers = {**api.fixed_headers, **(api.key_headers(key) if key else {})}
        self._endpoint = ProviderEndpoint(url, headers, key, self.options)

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
        answer = await self._endpoint.ask(self._api.path(self.model), body, before_attempt)
        try:
            reply = self._api.read_answer(answer)
        except ValueError as error:
            raise ModelError(f"the answer from {self!r} is not valid: {error}") from None
        return replace(reply, usage=self._priced(reply), seconds=monotonic() - began)

    async def close(self) -> None:
        await self._endpoint.close()

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


def _check_options(provider: str, api: ModelAPI, options: ModelOptions) -> None:
    for name in api.unsupported:
        if getattr(options, name) not in (None, ()):
            raise ValueError(f"{provider} has no option {name!r}")


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
    made: list[JSON] = []
    # The results of one reply belong together.
    for _, group in groupby(messages, lambda message: message.role):
        results: list[tuple[ToolInvocation, ToolOutput | ToolCallError]] = []
        for message in group:
            match message:
                case SystemMessage():
                    pass
                case UserMessage():
                    made += convert_prompt(_shown(message.blocks, images), format)
                case AgentMessage():
                    made += _replied(message, format)
                case ToolMessage():
                    results.append(_result(message, images))
                case _:
                    assert_never(message)
        made += convert_results(results, format)
    return made


def _replied(message: AgentMessage, format: Provider) -> list[JSON]:
    native = message.native
    if isinstance(native, Native) and native.format == format:
        return native.messages
    return convert_reply(message.text, message.calls, format)


def _result(message: ToolMessage, images: bool) -> tuple[ToolInvocation, ToolOutput | ToolCallError]:
    call = ToolInvocation(message.name, {}, message.call)
    blocks = _shown(message.blocks, images)
    if message.ok:
        return call, ToolOutput(blocks=blocks)
    return call, ToolCallError(text_and_images(blocks)[0])


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
