"""The parts of a provider's format."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ors.schemas.structure import Schema
from ors.types import Blocks, ImageBlock, TextBlock

RawCall = tuple[Any, Any, Any]
"""Name, arguments and id of a call, not checked yet."""


@dataclass(frozen=True)
class ToolInvocation:
    """A tool call of a model: run `session.call_tool(name, input)`, send the result back under `id`."""

    name: str
    input: dict[str, Any]
    id: str | None = None
    error: str | None = None
    """Why the model's arguments could not be read. If set, do not run the call: send the model this text."""
    raw: str | None = None
    """The arguments as the model wrote them, if they could not be read."""


@dataclass(frozen=True)
class CallResult:
    """The result of a call: the tool's output, or the text of a refusal."""

    call: ToolInvocation
    blocks: Blocks
    ok: bool


Messages = list[dict[str, Any]]


@dataclass(frozen=True)
class Format:
    """The format of one provider for tools, their calls and messages."""

    names: str
    """The regular expression that a tool's name must match."""
    spec: Callable[[Schema, Schema], Schema]
    """A tool, from its name with description, and the schema of its input."""
    call: Callable[[Any], RawCall | None]
    """The parts of a call; None if it is not a call of this provider."""
    prompt: Callable[[Blocks], Messages]
    """The message that shows blocks to the model."""
    reply: Callable[[str, Sequence[ToolInvocation]], Messages]
    """A message of the model, from its text and its calls."""
    results: Callable[[Sequence[CallResult]], Messages]
    """The messages with the results of all calls of one reply."""


def field(value: Any, *names: str) -> Any:
    """The first of these fields that is set: SDK objects have attributes, parsed JSON has keys."""
    keyed = type(value) is dict or isinstance(value, Mapping)  # the first is much faster
    for name in names:
        found = value.get(name) if keyed else getattr(value, name, None)
        if found is not None:
            return found
    return None


def typed_call(call: Any, type: str, *, arguments: str, id: str) -> RawCall | None:
    """The parts of a call whose `type` field marks it as one."""
    if field(call, "type") != type:
        return None
    return field(call, "name"), field(call, arguments), field(call, id)


NO_BLOCKS: Blocks = [TextBlock(text="(empty)")]
"""Stands for an empty prompt, where a provider accepts no empty message."""


def text_of(blocks: Blocks) -> str:
    return "\n".join(block.text for block in blocks if isinstance(block, TextBlock))


def images_of(blocks: Blocks) -> list[ImageBlock]:
    return [block for block in blocks if isinstance(block, ImageBlock)]


def data_url(image: ImageBlock) -> str:
    return f"data:{image.mimeType};base64,{image.data}"


def id_of(call: ToolInvocation) -> str:
    """The id of a call, for providers that match results to calls by it.

    Raises:
        ValueError: it has none.
    """
    if call.id is None:
        raise ValueError(f"The call of {call.name!r} has no id, which this provider needs: set it")
    return call.id
