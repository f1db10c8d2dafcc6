"""ModelAgent: a model of a provider, asked by HTTP."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

from ors.client import convert_tools
from ors.rollouts.agent import Conversation, ModelError
from ors.rollouts.agents.dialects import DIALECTS
from ors.rollouts.agents.dialects.base import Dialect, ModelRequest, merged
from ors.rollouts.agents.endpoint import ProviderEndpoint
from ors.rollouts.agents.history import provider_messages, system_text
from ors.rollouts.agents.options import ModelOptions
from ors.rollouts.episodes.messages import AgentMessage, ToolMessage, Usage
from ors.rollouts.task_key import episode_key
from ors.types import ToolSpec


class ModelAgent:
    """A model of a provider, or of a server that speaks its dialect. Close it after use.

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
        if provider not in DIALECTS:
            raise ValueError(f"Unknown provider {provider!r}; use one of {', '.join(DIALECTS)}")
        self.provider = provider
        self.model = model
        self.options = ModelOptions(**options)
        self._dialect = dialect = DIALECTS[provider]
        _check_options(provider, dialect, self.options)
        url = base_url or os.environ.get(dialect.url_variable) or dialect.base_url
        self._official = url.rstrip("/") == dialect.base_url
        key = _key(api_key, provider, dialect, needed=self._official)
        headers = {**dialect.fixed_headers, **(dialect.headers(key) if key else {})}
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
        body = merged(self._dialect.body(self._request(conversation, tools)), self.options.extra)
        answer = await self._endpoint.ask(self._dialect.path(self.model), body)
        try:
            reply = _said(self._dialect.reply(answer), conversation)
        except ValueError as error:
            raise ModelError(f"the answer of {self!r} is not valid: {error}") from None
        return replace(reply, usage=self._priced(reply), seconds=monotonic() - began)

    async def close(self) -> None:
        await self._endpoint.close()

    def _request(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> ModelRequest:
        format, messages = self._dialect.format, conversation.messages
        return ModelRequest(
            self.model,
            system_text(messages),
            provider_messages(messages, format, images=self.options.images),
            convert_tools(tools, format),
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


def _check_options(provider: str, dialect: Dialect, options: ModelOptions) -> None:
    for name in dialect.unsupported:
        if getattr(options, name) not in (None, ()):
            raise ValueError(f"{provider} has no option {name!r}")


def _key(given: str | None, provider: str, dialect: Dialect, *, needed: bool) -> str:
    names = dialect.key_variables
    key = (given or next(filter(None, map(os.environ.get, names)), "")).strip()
    if not key and needed:
        how = f"set {' or '.join(names)}, or in Python the argument api_key"
        raise ValueError(f"{provider} needs an API key: {how}")
    if not (key.isascii() and key.isprintable()):
        raise ValueError(f"The API key for {provider} contains characters that no key has")
    return key
