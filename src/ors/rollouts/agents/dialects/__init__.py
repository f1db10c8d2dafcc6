"""The dialects of model providers.

A new one is a module with a `Dialect` like those here, and a line in `DIALECTS`.
"""

from ors.rollouts.agents.dialects.anthropic import ANTHROPIC
from ors.rollouts.agents.dialects.base import Dialect
from ors.rollouts.agents.dialects.chat import CHAT, OPENROUTER
from ors.rollouts.agents.dialects.google import GOOGLE
from ors.rollouts.agents.dialects.responses import RESPONSES

DIALECTS: dict[str, Dialect] = {
    "openai": CHAT,
    "openai-chat": CHAT,
    "openai-responses": RESPONSES,
    "anthropic": ANTHROPIC,
    "google": GOOGLE,
    "openrouter": OPENROUTER,
}
