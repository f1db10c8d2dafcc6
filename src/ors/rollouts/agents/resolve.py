"""Resolves the name of an agent."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import fields
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Any

from ors.rollouts.agent import Agent
from ors.rollouts.agents.baselines import NoopAgent, RandomAgent
from ors.rollouts.agents.dialects import DIALECTS
from ors.rollouts.agents.gold import GoldAgent
from ors.rollouts.agents.human import HumanAgent
from ors.rollouts.agents.imported import imported_agent
from ors.rollouts.agents.model import ModelAgent
from ors.rollouts.agents.options import ModelOptions
from ors.rollouts.agents.replay import ReplayAgent
from ors.rollouts.episodes.record import EpisodeRecord

_PLAIN: dict[str, Callable[..., Agent]] = {
    "random": RandomAgent,
    "noop": NoopAgent,
    "gold": GoldAgent,
    "human": HumanAgent,
}
_MODEL_OPTIONS = ("base_url", "api_key", *(field.name for field in fields(ModelOptions)))


def resolve(name: str, **options: Any) -> Agent:
    """The agent of that name, made with `options`.

    Names are `random`, `noop`, `gold`, `human`; `openai:MODEL`, `openai-responses:MODEL`, `anthropic:MODEL`,
    `google:MODEL`, `openrouter:MODEL`; `replay:RUN` with the option `read_run`, which reads the records of
    a run; and `module:object` for an agent of one's own. Some agents have a coroutine `close()`: await it
    after use.

    Raises:
        ValueError: there is no such agent, or it has no such option.
    """
    kind, colon, rest = name.partition(":")
    if not colon and kind in _PLAIN:
        return _made(name, _PLAIN[kind], _parameters(_PLAIN[kind]), options)
    if kind in (*DIALECTS, "replay") and not rest:
        raise ValueError(
            f"{kind} needs a name after a colon: {kind}:{'RUN' if kind == 'replay' else 'MODEL'}"
        )
    if kind in DIALECTS:
        made = options | {"provider": kind, "model": rest}
        return _made(name, ModelAgent, ("provider", "model", *_MODEL_OPTIONS), made)
    if kind == "replay":
        return _made(name, _replay, _parameters(_replay), options | {"run": rest})
    if colon and rest and kind not in _PLAIN and _importable(kind):
        return imported_agent(name, **options)
    raise ValueError(f"There is no agent {name!r}.{_suggestion(kind, colon + rest)}")


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


def _suggestion(kind: str, rest: str) -> str:
    named = (*_PLAIN, *DIALECTS, "replay")
    near = get_close_matches(kind, named, 1)
    if near:
        given = "" if near[0] in _PLAIN else rest or ":NAME"
        return f" Did you mean {near[0]}{given}?"
    missing = f" There is no module {kind!r} either." if rest else ""
    providers = ", ".join(f"{provider}:MODEL" for provider in DIALECTS)
    return (
        f"{missing} Use {', '.join(_PLAIN)}, replay:RUN, {providers}, or module:object for one of your own."
    )
