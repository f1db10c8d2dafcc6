"""Parameters of environments, by `--set`, and variants with names of their own, by `--as`."""

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import click
from pydantic import TypeAdapter

from ors.cli.errors import WrongUsage
from ors.errors import InvalidEnvironment

F = TypeVar("F", bound=Callable[..., Any])
SET_AT_START = "--set needs a TARGET: the parameters of a server are set where it is started"
SETTINGS = "ors.settings"
"""Where the context of a command keeps what `--set` has given."""


def parameters(command: F) -> F:
    text = "Parameter of the environment; with several environments, ENVIRONMENT.NAME=VALUE. Repeatable."
    return click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help=text)(command)


def given_settings() -> Sequence[str]:
    context = click.get_current_context(silent=True)
    return () if context is None else context.meta.get(SETTINGS, ())


def words(settings: Iterable[str], names: Iterable[str] = ()) -> list[str]:
    """The options of `ors serve` for these. There is always one of each, since a file may set others."""
    pairs = [("--set", each) for each in settings or ("",)] + [("--as", each) for each in names or ("",)]
    return [word for pair in pairs for word in pair]


def configured(classes: Sequence[Any], settings: Iterable[str]) -> list[Any]:
    """The classes with their parameters set by `NAME=VALUE` or `ENVIRONMENT.NAME=VALUE`."""
    values: dict[Any, dict[str, Any]] = {cls: {} for cls in classes}
    for setting in sorted(filter(None, settings), key=lambda each: "." in each.partition("=")[0]):
        key, equals, text = setting.partition("=")
        environment, _, name = key.rpartition(".")
        if not equals or not name:
            raise WrongUsage(f"--set {setting}: give NAME=VALUE, or ENVIRONMENT.NAME=VALUE")
        for cls in _meant(classes, environment, name):
            values[cls][name] = _value(cls, name, text)
    try:
        return [cls.configured(**given) if given else cls for cls, given in values.items()]
    except InvalidEnvironment as error:
        raise WrongUsage(f"--set: {error}") from None


def _meant(classes: Sequence[Any], environment: str, name: str) -> Sequence[Any]:
    if not environment:
        having = [cls for cls in classes if name in getattr(getattr(cls, "Config", None), "model_fields", ())]
        return having or classes[:1]  # which says that it has none
    found = [cls for cls in classes if cls.name().lower() == environment.lower()]
    if not found:
        names = ", ".join(cls.name().lower() for cls in classes)
        raise WrongUsage(f"--set {environment}.{name}: there is no environment {environment!r}, only {names}")
    return found


def _value(cls: Any, name: str, text: str) -> Any:
    """JSON where that fits, as for a list. Where it does not, as for the string "5", the text itself."""
    with suppress(Exception):  # it is no JSON, or of another type; the error of the text is clearer
        return TypeAdapter(cls.Config.model_fields[name].annotation).validate_python(json.loads(text))
    return text
