"""OpenRouter, which speaks OpenAI's Chat Completions."""

from ors.client.formats.openai import CHAT

OPENROUTER = CHAT
