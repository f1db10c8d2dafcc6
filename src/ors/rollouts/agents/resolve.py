"""Resolves the name of an agent."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import fields
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ors.providers import MODEL_NAMES
from ors.providers.base import ModelOptions
from ors.rollouts.agents.coding.table import CODING
from ors.rollouts.agents.human import HumanAgent
from ors.rollouts.agents.model import ModelAgent
from ors.rollouts.agents.plain import GoldAgent, NoopAgent, RandomAgent, ReplayAgent
from ors.rollouts.episodes.episode import Agent, EpisodeRecord

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
    `codex:MODEL`, `gemini-cli:MODEL`, `opencode:MODEL`; `replay:RUN` with the option `read_run`, which reads
    the records of a run; and `module:object` for your own agent. Some agents have a coroutine `close()`:
    await it after use.

    Raises:
        ValueError: there is no such agent, or it has no such option.
    """
    kind, colon, rest = name.partition(":")
    if not colon and kind in _PLAIN:
        return _made(name, _PLAIN[kind], _parameters(_PLAIN[kind]), options)
    if kind in (*MODEL_NAMES, *CODING, "replay") and not rest:
        raise ValueError(
            f"{kind} needs a name after a colon: {kind}:{'RUN' if kind == 'replay' else 'MODEL'}"
        )
    if kind in MODEL_NAMES:
        made = options | {"provider": kind, "model": rest}
        return _made(name, ModelAgent, ("provider", "model", *_MODEL_OPTIONS), made)
    if kind in CODING:
        from ors.rollouts.agents.coding.agent import CodingAgent  # late: it brings a web server

        return _made(name, CodingAgent, _parameters(CodingAgent), options | {"name": kind, "model": rest})
    if kind == "replay":
        return _made(name, _replay, _parameters(_replay), options | {"run": rest})
    if colon and rest and kind not in _PLAIN and _importable(kind):
        return _imported(name, **options)
    raise ValueError(f"Unknown agent {name!r}.{_suggestion(kind, colon + rest)}")


def _replay(run: str, read_run: Callable[[str], Iterable[EpisodeRecord]]) -> Agent:
    return ReplayAgent(read_run(run))


def _made(name: str, make: Callable[..., Agent], known: Iterable[str], options: dict[str, Any]) -> Agent:
    known = tuple(known)
    for option in options:
        if option not in known:
            near = get_close_matches(option, known, 1)
            raise ValueError(
                f"{name} has no option {option!r}." + (f" Did you mean {near[0]}?" if near else "")
            )
    try:
        inspect.signature(make).bind(**options)
    except TypeError as error:
        raise ValueError(f"{name}: {error}") from None
    return make(**options)


def _parameters(make: Callable[..., Agent]) -> tuple[str, ...]:
    return tuple(inspect.signature(make).parameters)


def _importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ModuleNotFoundError, ValueError):
        return False
    except Exception:
        return True  # code of the user, which raises again when it is imported


def _imported(place: str, **options: Any) -> Agent:
    """The agent at `module:object`: an agent, or a class or function that makes one from `options`."""
    found = _found(place)
    if not isinstance(found, type) and hasattr(found, "reply"):
        if options:
            raise ValueError(f"{place} is an agent already, so it takes no options: {', '.join(options)}")
        made = found
    elif callable(found):
        try:
            made = found(**options)
        except Exception as error:
            raise ValueError(f"{place} cannot be created: {type(error).__name__}: {error}") from error
    else:
        made = None
    if not callable(getattr(made, "reply", None)):
        raise ValueError(f"{place} is not an agent: it needs a method `async def reply(conversation, tools)`")
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


def _suggestion(kind: str, rest: str) -> str:
    named = (*_PLAIN, *MODEL_NAMES, *CODING, "replay")
    near = get_close_matches(kind, named, 1)
    if near:
        given = "" if near[0] in _PLAIN else rest or ":NAME"
        return f" Did you mean {near[0]}{given}?"
    missing = f" There is no module {kind!r} either." if rest else ""
    providers = ", ".join(f"{provider}:MODEL" for provider in (*MODEL_NAMES, *CODING))
    return (
        f"{missing} Use {', '.join(_PLAIN)}, replay:RUN, {providers}, or module:object for one of your own."
    )
