"""The parts of a provider's dialect."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ors._json import dumps
from ors.client import Provider, ToolInvocation, parse_tool_call
from ors.client.formats.convert import format_of
from ors.errors import ToolCallError
from ors.rollouts.agents.options import ModelOptions
from ors.rollouts.episodes.messages import AgentMessage, StopReason, Usage

JSON = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Native:
    """A reply as the provider sent it; it goes back to a provider of the same format unchanged."""

    format: Provider
    messages: list[JSON]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request, before it is written in a dialect."""

    model: str
    system: str
    messages: list[JSON]
    """In the provider's format, as are the tools."""
    tools: list[JSON]
    options: ModelOptions
    official: bool
    """Whether it goes to the provider itself, and not to another server that speaks its dialect."""


@dataclass(frozen=True)
class Dialect:
    """How a provider is asked, and how its answers are read."""

    format: Provider
    base_url: str
    url_variable: str
    key_variables: tuple[str, ...]
    headers: Callable[[str], dict[str, str]]
    """The headers that carry a key."""
    path: Callable[[str], str]
    """The path for a model."""
    body: Callable[[ModelRequest], JSON]
    reply: Callable[[Any], AgentMessage]
    """Reads an answer. Raises ValueError if it is not valid, or the provider failed."""
    unsupported: tuple[str, ...] = ()
    """Options that the provider does not have."""
    fixed_headers: Mapping[str, str] = field(default_factory=dict)


def bearer(key: str) -> dict[str, str]:
    """The header that carries a key as a bearer token."""
    return {"Authorization": f"Bearer {key}"}


def given(**fields: Any) -> JSON:
    return {name: value for name, value in fields.items() if value is not None and value != ()}


def at(value: Any, *path: str | int) -> Any:
    """The value at a path of keys and positions; None if there is none."""
    for step in path:
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def entries(value: Any, *path: str | int) -> list[JSON]:
    found = at(value, *path)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def text(value: Any, *path: str | int) -> str:
    """The text at a path, or an empty one."""
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def count(value: Any, *path: str | int) -> int:
    found = at(value, *path)
    return found if isinstance(found, int) and found > 0 else 0


def openai_usage(usage: Any, sent: str, made: str) -> Usage:
    """The counts of one of OpenAI's dialects, by its words for what a model was sent and what it made."""
    return Usage(
        input_tokens=count(usage, f"{sent}_tokens"),
        output_tokens=count(usage, f"{made}_tokens"),
        cached_tokens=count(usage, f"{sent}_tokens_details", "cached_tokens"),
        reasoning_tokens=count(usage, f"{made}_tokens_details", "reasoning_tokens"),
    )


def stop_of(reason: Any, stops: Mapping[str, StopReason], why: str = "") -> StopReason:
    """What a provider's stop reason means: an answer, a cut-off, a refusal or a pause.

    Raises:
        ValueError: it is in no table: the provider failed, or the reason is new. The reply is no answer.
    """
    if not isinstance(reason, str) or reason not in stops:
        raise ValueError(f"the model stopped with {reason!r:.100}" + (f": {why:.300}" if why else ""))
    return stops[reason]


def invocation(call: JSON, format: Provider, *, cut: bool = False) -> ToolInvocation:
    """A call of the model; with `error` if its arguments cannot be read, or the output was cut off in it.

    Raises:
        ValueError: it is not a call.
    """
    try:
        read = parse_tool_call(call, format)
        if not cut:
            return read
        error = (
            "The output was cut off before the end of this call"  # what is there may be valid all the same
        )
    except ToolCallError as refusal:
        error = str(refusal)
    name, written, id = format_of(format).call(call) or ("", None, None)
    raw = written if isinstance(written, str) else "" if written is None else dumps(written).decode()
    return ToolInvocation(name, {}, id, error, raw)


def give_ids(calls: Iterable[JSON], key: str = "id") -> None:
    """Gives calls without an id one, and those whose id another call has: servers have sent both."""
    seen = {""}
    for call in calls:
        if text(call, key) in seen:
            call[key] = f"call_{os.urandom(8).hex()}"
        seen.add(call[key])


def merged(body: Mapping[str, Any], extra: Mapping[str, Any]) -> JSON:
    """`body` with the fields of `extra`, also inside objects; None removes a field."""
    made = dict(body)
    for name, value in extra.items():
        inner = made.get(name)
        if value is None:
            made.pop(name, None)
        elif isinstance(value, Mapping) and isinstance(inner, Mapping):
            made[name] = merged(inner, value)
        else:
            made[name] = value
    return made
