"""Episodes as trajectories in the Agent Trajectory Interchange Format, ATIF v1.8."""

import base64
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, assert_never

from ors.client import ToolInvocation
from ors.providers.messages import SystemMessage, ToolMessage, Usage, UserMessage
from ors.rollouts.episodes.episode import EpisodeRecord
from ors.rollouts.records.exports.openai import Turn, turns
from ors.types import Block, ImageBlock, TextBlock, ToolSpec, described, text_and_images

VERSION = "ATIF-v1.8"
ENDINGS = {"image/jpeg": ".jpg", "image/png": ".png", "image/gif": ".gif", "image/webp": ".webp"}
"""The images that the format allows, and the endings of their files."""
SaveImage = Callable[[bytes, str], str]
"""Saves an image with this ending; returns its path relative to the trajectory."""


def atif_trajectory(record: EpisodeRecord, *, version: str, save: SaveImage) -> dict[str, Any]:
    """The trajectory of an episode. Reward, outcome and task are in `extra`.

    `version` is that of ors, which played it.
    """
    named = [each.components for each in record.messages if isinstance(each, ToolMessage)]
    components = {"components": dict(record.components), "step_components": named} if any(named) else {}
    steps = [_step(part, record, save) for part in turns(record.messages)]
    return {
        "schema_version": VERSION,
        "session_id": record.session or record.id,
        "trajectory_id": record.id,
        "agent": _agent(record, version),
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
        "final_metrics": {**_counts(record.usage, "total_"), "total_steps": len(steps)},
        "extra": {
            "reward": record.reward,
            "rewards": list(record.rewards),
            **components,
            "outcome": asdict(record.outcome),
            "task": asdict(record.task),
            "environment": {"version": record.version, "hash": record.hash},
            "sample": record.sample,
            "seconds": record.seconds,
        },
    }


def _agent(record: EpisodeRecord, version: str) -> dict[str, Any]:
    model = {"model_name": record.agent} if record.agent else {}
    tools = {"tool_definitions": [_tool(each) for each in record.tools]} if record.tools else {}
    return {"name": "ors", "version": version, **model, **tools}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    schema = tool.input_schema or {"type": "object", "properties": {}}
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": schema},
    }


def _step(part: SystemMessage | UserMessage | Turn, record: EpisodeRecord, save: SaveImage) -> dict[str, Any]:
    match part:
        case SystemMessage():
            return {"source": "system", "message": part.text}
        case UserMessage():
            return {"source": "user", "message": _content(part.blocks, save)}
        case Turn():
            return _turn(part, record, save)
        case _:
            assert_never(part)


def _turn(part: Turn, record: EpisodeRecord, save: SaveImage) -> dict[str, Any]:
    calls = [
        {"tool_call_id": id, "function_name": call.name, "arguments": _arguments(call)}
        for id, call in part.calls.items()
    ]
    results = [
        {**({} if id is None else {"source_call_id": id}), "content": _content(result.blocks, save)}
        for id, result in part.results
    ]
    found = {
        "timestamp": _timestamp(record, part),
        "source": "agent",
        "message": part.reply.text,
        "reasoning_content": part.reply.reasoning,
        "tool_calls": calls or None,
        "observation": {"results": results} if results else None,
        "metrics": None if part.reply.usage == Usage() else _counts(part.reply.usage) or None,
    }
    return {key: value for key, value in found.items() if value is not None}


def _arguments(call: ToolInvocation) -> dict[str, Any]:
    return call.input if call.raw is None else {"not_a_json_object": call.raw}


def _timestamp(record: EpisodeRecord, turn: Turn) -> str | None:
    """When the first call of a reply began; None if nobody measured it."""
    if not record.started or not turn.results:
        return None
    return datetime.fromtimestamp(record.started + turn.results[0][1].started, UTC).isoformat()


def _counts(usage: Usage, prefix: str = "") -> dict[str, Any]:
    if usage.unknown:
        return {}
    counts = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "cost_usd": usage.cost,
    }
    return {prefix + name: value for name, value in counts.items() if value is not None}


def _content(blocks: Sequence[Block], save: SaveImage) -> str | list[dict[str, Any]]:
    text, images = text_and_images(blocks)
    return [_part(block, save) for block in blocks] if images else text


def _part(block: Block, save: SaveImage) -> dict[str, Any]:
    match block:
        case TextBlock():
            return {"type": "text", "text": block.text}
        case ImageBlock():
            return _image(block, save)
        case _:
            assert_never(block)


def _image(image: ImageBlock, save: SaveImage) -> dict[str, Any]:
    try:
        content = base64.b64decode(image.data, validate=True)
        path = save(content, ENDINGS[image.mimeType])
    except (KeyError, ValueError):  # another type, or not base64: the format has no place for it
        return {"type": "text", "text": described([image])}
    return {"type": "image", "source": {"media_type": image.mimeType, "path": path}}
