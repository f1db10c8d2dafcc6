"""Checks the replies of agents, which are anybody's code."""

from collections.abc import Mapping
from typing import Any, get_args

from ors._json import dumps
from ors.client import ToolInvocation
from ors.rollouts.episodes.messages import AgentMessage, StopReason, Usage

_REPLY = {"text": str, "calls": (tuple, list), "reasoning": (str, type(None)), "seconds": (float, int)}
_CALL = {"name": str, "input": Mapping, **dict.fromkeys(("id", "error", "raw"), (str, type(None)))}
_USAGE = {
    **dict.fromkeys(("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens", "unknown"), int),
    "cost": (float, int, type(None)),
}
_STOPS = get_args(StopReason)


def check_reply(message: object) -> None:
    """Checks that a reply is one that a record can keep.

    Raises:
        TypeError, ValueError, RecursionError: it is not.
    """
    _check(message, AgentMessage, "the agent's reply")
    _check_fields(message, _REPLY, "the agent's reply")
    assert isinstance(message, AgentMessage)
    if message.stop not in _STOPS:
        raise ValueError(f"the agent's reply has the stop {message.stop!r:.100}, not one of {_STOPS}")
    _check(message.usage, Usage, "the usage of the agent's reply")
    _check_fields(message.usage, _USAGE, "the usage of the agent's reply")
    for call in message.calls:
        _check(call, ToolInvocation, "a call of the agent")
        _check_fields(call, _CALL, "a call of the agent")
        dumps(call.input)


def _check(value: object, kind: type, what: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{what} is of the type {type(value).__name__}, not {kind.__name__}")


def _check_fields(value: object, fields: Mapping[str, Any], what: str) -> None:
    for name, kinds in fields.items():
        if not isinstance(found := getattr(value, name), kinds):
            raise TypeError(f"{what} has a field {name!r} of the wrong type {type(found).__name__}")
