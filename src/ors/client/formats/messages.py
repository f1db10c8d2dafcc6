"""Converts prompts, replies and results of calls to a provider's messages.

All messages are plain JSON, as they go into the provider's HTTP request: `input` items (openai), `messages`
(openai-chat, openrouter, anthropic), `contents` (google).
"""

from collections.abc import Iterable, Sequence

from ors.client.formats.base import CallResult, Messages, ToolInvocation
from ors.client.formats.convert import Provider, format_of
from ors.errors import ToolCallError
from ors.types import Block, TextBlock, ToolOutput


def convert_prompt(blocks: Sequence[Block], format: Provider) -> Messages:
    """Converts a prompt, with its images, to the messages that `format` expects.

    Raises:
        ValueError: `format` is unknown.
    """
    return format_of(format).prompt(list(blocks))


def convert_reply(text: str, calls: Sequence[ToolInvocation], format: Provider) -> Messages:
    """Converts a reply of a model, as text and calls, to the messages that `format` expects.

    In a loop of your own, send the provider's answer back instead: it may contain reasoning.

    Raises:
        ValueError: `format` is unknown, or matches results to calls by id, and a call has none.
    """
    return format_of(format).reply(text, calls)


def convert_results(
    results: Iterable[tuple[ToolInvocation, ToolOutput | ToolCallError]], format: Provider
) -> Messages:
    """Converts the results of all calls of one reply to the messages that `format` expects.

    A refusal is marked as an error where the provider has a field for that (anthropic, google). Chat
    Completions takes no images in results: they follow in a user message.

    Raises:
        ValueError: as `convert_reply`.
    """
    return format_of(format).results([_result(call, output) for call, output in results])


def _result(call: ToolInvocation, output: ToolOutput | ToolCallError) -> CallResult:
    if isinstance(output, ToolCallError):
        return CallResult(call, [TextBlock(text=str(output))], ok=False)
    return CallResult(call, output.blocks, ok=True)
