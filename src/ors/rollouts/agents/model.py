"""ModelAgent: a model of a provider, asked by HTTP."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from time import monotonic
from typing import Any, Unpack, assert_never

from ors.client import AsyncSession, ToolInvocation
from ors.errors import ToolCallError
from ors.providers import MODEL_NAMES, Provider, api_of
from ors.providers.base import JSON, ModelAPI, ModelOptions, ModelRequest, Native
from ors.providers.convert import convert_prompt, convert_reply, convert_results, convert_tools
from ors.providers.errors import ModelError
from ors.providers.messages import AgentMessage, Message, SystemMessage, ToolMessage, Usage, UserMessage
from ors.providers.parts import merged
from ors.rollouts.agents.endpoint import ProviderEndpoint
from ors.rollouts.episodes.episode import Conversation, EpisodeRecord
from ors.rollouts.episodes.played import play
from ors.rollouts.episodes.rules import PlayArguments
from ors.rollouts.episodes.task import episode_key
from ors.types import Block, Blocks, ImageBlock, TextBlock, ToolOutput, ToolSpec, text_and_images


class ModelAgent:
    """A model of a provider, or of a server that speaks its API. Close it after use.

    `provider` is "openai" (Chat Completions), "openai-responses", "anthropic", "google" or "openrouter".
    `base_url` and `api_key` come from the provider's usual environment variables if they are not given.
    The other options are the fields of `ModelOptions`.

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
        url = base_url or os.environ.get(api.url_variable) or api.base_url
        self._official = url.rstrip("/") == api.base_url
        key = _key(api_key, provider, api, needed=self._official)
        headers = {**api.fixed_headers, **(api.key_headers(key) if key else {})}
        self._endpoint = ProviderEndpoint(url, headers, key, self.options)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.provider}:{self.model}>"

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AgentMessage:
        """Asks the model for its next message.

        Raises:
            ContextExceeded: the conversation is too long.
            ModelError: the provider failed.
            ValueError: the provider's rules forbid the name or the input of a tool.
        """
        began = monotonic()
        body = merged(self._api.write_body(self._request(conversation, tools)), self.options.extra)
        answer = await self._endpoint.ask(self._api.path(self.model), body)
        try:
            reply = _said(self._api.read_answer(answer), conversation)
        except ValueError as error:
            raise ModelError(f"the answer from {self!r} is not valid: {error}") from None
        return replace(reply, usage=self._priced(reply), seconds=monotonic() - began)

    async def close(self) -> None:
        await self._endpoint.close()

    def _request(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> ModelRequest:
        messages = conversation.messages
        return ModelRequest(
            self.model,
            "\n\n".join(message.text for message in messages if isinstance(message, SystemMessage)),
            _provider_messages(messages, self._format, images=self.options.images),
            convert_tools(tools, self._format),
            self._seeded(conversation),
            self._official,
        )

    def _seeded(self, conversation: Conversation) -> ModelOptions:
        if self.options.seed is None:
            return self.options
        episode = episode_key(conversation.task, conversation.sample)
        digest = hashlib.sha256(f"{self.options.seed} {episode}".encode()).digest()
        return replace(self.options, seed=int.from_bytes(digest[:4]) // 2)  # all providers take 31 bits

    def _priced(self, reply: AgentMessage) -> Usage:
        prices, usage = self.options.prices, reply.usage
        # A request has input, and a reply with anything in it has output.
        if not usage.input_tokens or not (usage.output_tokens or not (reply.text or reply.calls)):
            return replace(usage, unknown=1)
        return usage if prices is None else replace(usage, cost=prices.cost(usage))


def _said(reply: AgentMessage, conversation: Conversation) -> AgentMessage:
    if reply.stop != "stop" or reply.calls or reply.text.strip():
        return reply
    # After results of calls, models say that they are done by saying nothing.
    if any(isinstance(message, ToolMessage) for message in conversation.messages):
        return replace(reply, stop="empty")
    raise ValueError("it has neither text nor a tool call")


def _check_options(provider: str, api: ModelAPI, options: ModelOptions) -> None:
    for name in api.unsupported:
        if getattr(options, name) not in (None, ()):
            raise ValueError(f"{provider} has no option {name!r}")


def _key(given: str | None, provider: str, api: ModelAPI, *, needed: bool) -> str:
    names = api.key_variables
    key = (given or next(filter(None, map(os.environ.get, names)), "")).strip()
    if not key and needed:
        how = f"set {' or '.join(names)}, or in Python the argument api_key"
        raise ValueError(f"{provider} needs an API key: {how}")
    if not (key.isascii() and key.isprintable()):
        raise ValueError(f"The API key for {provider} contains characters that no key has")
    return key


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


async def play_model(
    session: AsyncSession,
    base_url: str,
    model: str,
    *,
    api_key: str | None = None,
    options: Mapping[str, Any] | None = None,
    sample: int = 0,
    **arguments: Unpack[PlayArguments],
) -> EpisodeRecord:
    """Plays one episode in `session` with a model that is served as Chat Completions: see `play`.

    For trainers that capture the tokens behind an address of their own. `options` are those of `ModelAgent`.

    Raises:
        ValueError: `base_url` or an option is not valid, or `reward` is not a known reduction.
    """
    agent = ModelAgent("openai", model, base_url=base_url, api_key=api_key, **(options or {}))
    try:
        return await play(session, agent, sample=sample, **arguments)
    finally:
        await agent.close()
