"""Resolves the name of an agent."""

import inspect
from collections.abc import Callable, Collection
from dataclasses import fields
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from ors.providers import MODEL_NAMES
from ors.providers.base import ModelOptions
from ors.rollouts.agents.builtin import GoldAgent, ModelAgent, NoopAgent, RandomAgent, ReplayAgent
from ors.rollouts.agents.coding.table import CODING
from ors.rollouts.agents.human import HumanAgent
from ors.rollouts.episodes.episode import Agent

_PLAIN: dict[str, Callable[..., Agent]] = {
    "random": RandomAgent,
    "noop": NoopAgent,
    "gold": GoldAgent,
    "human": HumanAgent,
}
_MODEL_OPTIONS = ("base_url", "api_key", *(field.name for field in fields(ModelOptions)))


def resolve(name: str, **options: Any) -> Agent:
    """The agent of that name, made with `options`.

    Names are `random`, `noop`, `gold`, `human`; `openai:MODEL` (Chat Completions), `openai-responses:MODEL`,
    `anthropic:MODEL`, `google:MODEL`, `openrouter:MODEL`; the coding agents `claude-code:MODEL`,
    `codex:MODEL`, `gemini-cli:MODEL`, `opencode:MODEL`; `replay:RUN` for the folder of a run; and
    `module:object` for your own agent. Some agents have a coroutine `close()`: await it after use.

    Raises:
        ValueError: there is no such agent, it has no such option, or the run cannot be read.
    """
    kind, _, rest = name.partition(":")
    if kind in _PLAIN and kind == name:
        return _made(name, _PLAIN[kind], options)
    if kind not in (*MODEL_NAMES, *CODING, "replay"):
        return _imported(name, options)
    if not rest:
        raise ValueError(
            f"{kind} needs a name after a colon: {kind}:{'RUN' if kind == 'replay' else 'MODEL'}"
        )
    if kind in MODEL_NAMES:
        known = ("provider", "model", *_MODEL_OPTIONS)
        return _made(name, ModelAgent, options | {"provider": kind, "model": rest}, known)
    if kind in CODING:
        from ors.rollouts.agents.coding.agent import CodingAgent  # late: it brings a web server

        return _made(name, CodingAgent, options | {"name": kind, "model": rest})
    return _made(name, _replay, options | {"run": rest})


def _replay(run: str) -> Agent:
    from ors.rollouts.records.reader import read_run  # late: no other agent reads runs

    return ReplayAgent(read_run(run).episodes())


def _made(
    name: str, make: Callable[..., Agent], options: dict[str, Any], known: Collection[str] = ()
) -> Agent:
    signature = inspect.signature(make)
    known = known or signature.parameters
    for option in options:
        if option not in known:
            near = [f" Did you mean {each}?" for each in get_close_matches(option, known, 1)]
            raise ValueError(f"{name} has no option {option!r}.{''.join(near)}")
    try:
        signature.bind(**options)
    except TypeError as error:
        raise ValueError(f"{name}: {error}") from None
    return make(**options)


def _imported(name: str, options: dict[str, Any]) -> Agent:
    """The agent at `module:object`: an agent, or a class or function that makes one from `options`."""
    found = _found(name)
    if not isinstance(found, type) and hasattr(found, "reply"):
        if options:
            raise ValueError(f"{name} is already an agent, so it takes no options: {', '.join(options)}")
    elif callable(found):
        try:
            found = found(**options)
        except Exception as error:
            raise ValueError(f"{name} cannot be created: {type(error).__name__}: {error}") from error
    if not callable(getattr(found, "reply", None)):
        raise ValueError(f"{name} is not an agent: it needs a method `async def reply(conversation, tools)`")
    agent: Agent = found
    return agent


def _found(name: str) -> Any:
    module, _, path = name.partition(":")
    if not path or module in _PLAIN:
        raise ValueError(f"Unknown agent {name!r}.{_suggestion(name)}")
    try:
        found: Any = import_module(module)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            raise ValueError(f"Unknown agent {name!r}.{_suggestion(name)}") from None
        raise ValueError(f"{module} cannot be imported: {type(error).__name__}: {error}") from error
    for step in path.split("."):
        if not hasattr(found, step):
            raise ValueError(f"{module} has no {path}")
        found = getattr(found, step)
    return found


def _suggestion(name: str) -> str:
    kind, colon, rest = name.partition(":")
    named = [f"{each}:MODEL" for each in (*MODEL_NAMES, *CODING)]
    if near := get_close_matches(kind, (*_PLAIN, *MODEL_NAMES, *CODING, "replay"), 1):
        return f" Did you mean {near[0]}{'' if near[0] in _PLAIN else colon + rest or ':NAME'}?"
    missing = f" There is no module {kind!r} either." if rest else ""
    known = ", ".join((*_PLAIN, "replay:RUN", *named))
    return f"{missing} Use {known}, or module:object for one of your own."
