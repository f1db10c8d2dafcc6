"""Model providers: how each writes tools and messages, is asked, answers and fails.

A new provider is a module here with an `API`, and its name in `Provider`.
"""

from functools import cache
from importlib import import_module
from typing import Literal, get_args

from ors.providers.base import ModelAPI

Provider = Literal["openai", "openai-chat", "anthropic", "google", "openrouter"]
"""Formats, each the module of that name: `openai` is the Responses API, `openai-chat` is Chat Completions."""
PROVIDERS: tuple[Provider, ...] = get_args(Provider)
MODEL_NAMES: dict[str, Provider] = {
    "openai": "openai-chat",
    "openai-responses": "openai",
    **{name: name for name in PROVIDERS if name != "openai"},
}
"""Names of models, such as `--model openai:NAME`: there, `openai` is Chat Completions."""


@cache
def api_of(name: Provider) -> ModelAPI:
    if name not in PROVIDERS:
        raise ValueError(f"Invalid format: {name!r}; use one of {', '.join(PROVIDERS)}")
    found: ModelAPI = import_module(f"{__name__}.{name.replace('-', '_')}").API
    return found
