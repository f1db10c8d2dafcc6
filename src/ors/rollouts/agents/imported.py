"""Agents that a user wrote."""

from importlib import import_module
from typing import Any

from ors.rollouts.agent import Agent


def imported_agent(place: str, **options: Any) -> Agent:
    """The agent at `module:object`: an agent, or a class or function that makes one from `options`.

    Raises:
        ValueError: there is none, or it cannot be imported or made.
    """
    found = _found(place)
    if not isinstance(found, type) and hasattr(found, "reply"):
        if options:
            raise ValueError(f"{place} is an agent already, so it takes no options: {', '.join(options)}")
        made = found
    elif callable(found):
        try:
            made = found(**options)
        except Exception as error:
            raise ValueError(f"{place} cannot be made: {type(error).__name__}: {error}") from error
    else:
        made = None
    if not callable(getattr(made, "reply", None)):
        raise ValueError(f"{place} is no agent: it needs a method `async def reply(conversation, tools)`")
    agent: Agent = made
    return agent


def _found(place: str) -> Any:
    module, _, name = place.partition(":")
    try:
        found: Any = import_module(module)
    except Exception as error:
        raise ValueError(f"{module} cannot be imported: {type(error).__name__}: {error}") from error
    for step in name.split("."):
        if not hasattr(found, step):
            raise ValueError(f"{module} has no {name}")
        found = getattr(found, step)
    return found
