"""The parts of a provider's format."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ors.schemas.structure import Schema

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


@dataclass(frozen=True)
class Format:
    """The format of one provider for tools and their calls."""

    names: str
    """The regular expression that a tool's name must match."""
    spec: Callable[[Schema, Schema], Schema]
    """A tool, from its name with description, and the schema of its input."""
    call: Callable[[Any], RawCall | None]
    """The parts of a call; None if it is not a call of this provider."""


def field(value: Any, *names: str) -> Any:
    """The first of these fields that is set: SDK objects have attributes, parsed JSON has keys."""
    found = (value.get(n) if isinstance(value, Mapping) else getattr(value, n, None) for n in names)
    return next((each for each in found if each is not None), None)


def typed_call(call: Any, type: str, *, arguments: str, id: str) -> RawCall | None:
    """The parts of a call whose `type` field marks it as one."""
    if field(call, "type") != type:
        return None
    return field(call, "name"), field(call, arguments), field(call, id)
