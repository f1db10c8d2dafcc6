"""Episodes as OpenAI Chat Completions messages, for supervised fine-tuning."""

from dataclasses import replace
from typing import Any

from ors.client import Provider, ToolOutput, convert_prompt, convert_reply, convert_results, convert_tools
from ors.rollouts.episodes.messages import SystemMessage, UserMessage
from ors.rollouts.episodes.record import EpisodeRecord
from ors.rollouts.records.exports.turns import Turn, turns
from ors.types import TextBlock

FORMAT: Provider = "openai-chat"
NOT_RUN = "Not run: the episode had ended."


def openai_example(record: EpisodeRecord) -> dict[str, Any]:
    """The messages and tools of an episode. Images are data URLs; reasoning is left out.

    Raises:
        ValueError: a tool cannot be expressed in this format.
    """
    messages = [message for part in turns(record.messages) for message in _messages(part)]
    tools = {"tools": convert_tools(record.tools, FORMAT)} if record.tools else {}
    return {"messages": messages, **tools}


def _messages(part: SystemMessage | UserMessage | Turn) -> list[dict[str, Any]]:
    if isinstance(part, SystemMessage):
        return [{"role": "system", "content": part.text}]
    return convert_prompt(part.blocks, FORMAT) if isinstance(part, UserMessage) else _turn(part)


def _turn(turn: Turn) -> list[dict[str, Any]]:
    calls = {id: replace(call, id=id) for id, call in turn.calls.items()}
    said = convert_reply(turn.reply.text, list(calls.values()), FORMAT) if calls or turn.reply.text else []
    for call, made in zip(calls.values(), said[0]["tool_calls"] if calls else (), strict=True):
        if call.raw is not None:
            made["function"]["arguments"] = call.raw
    # The result of a terminal tool belongs to no call, and comes after the last reply.
    answers = [(calls[id], ToolOutput(blocks=told.blocks)) for id, told in turn.results if id is not None]
    answers += [(calls[id], ToolOutput(blocks=[TextBlock(text=NOT_RUN)])) for id in turn.unanswered]
    return [*said, *convert_results(answers, FORMAT)]
