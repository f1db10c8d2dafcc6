"""Parameters of environments, by `--set`, and variants with names of their own, by `--as`."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from pydantic import ValidationError

from ors.cli.errors import WrongUsage
from ors.errors import InvalidEnvironment

if TYPE_CHECKING:  # late: a client needs no authoring code
    from ors import Environment

    Class = type[Environment]

SETTINGS = "ors.settings"
"""Where the context of a command keeps what `--set` has given."""


def given_settings() -> Sequence[str]:
    context = click.get_current_context(silent=True)
    return () if context is None else context.meta.get(SETTINGS, ())


def words(settings: Iterable[str], names: Iterable[str] = ()) -> list[str]:
    """The options of `ors serve` for these. There is always one of each, since a file may set others."""
    pairs = [("--set", each) for each in settings or ("",)] + [("--as", each) for each in names or ("",)]
    return [word for pair in pairs for word in pair]


def configured(classes: "Sequence[Class]", settings: Iterable[str]) -> "list[Class]":
    """The classes with their parameters set by `NAME=VALUE`, or by `ENVIRONMENT.NAME=VALUE` for one of them.

    Raises:
        WrongUsage: a value is wrong, or there is no such parameter.
    """
    texts: dict[Class, dict[str, str]] = {cls: {} for cls in classes}
    for setting in sorted(filter(None, settings), key=lambda each: "." in each.partition("=")[0]):
        key, equals, text = setting.partition("=")
        environment, _, name = key.rpartition(".")
        if not equals or not name:
            raise WrongUsage(f"--set {setting}: give NAME=VALUE, or ENVIRONMENT.NAME=VALUE")
        for cls in _meant(classes, environment, name):
            texts[cls][name] = text
    return [_configured(cls, given) if given else cls for cls, given in texts.items()]


def _meant(classes: "Sequence[Class]", environment: str, name: str) -> "list[Class]":
    if not environment:
        having = [cls for cls in classes if name in _fields(cls)]
        return having or list(classes[:1])  # which says that it has none
    found = [cls for cls in classes if cls.name().lower() == environment.lower()]
    if not found:
        names = ", ".join(cls.name().lower() for cls in classes)
        raise WrongUsage(f"--set {environment}.{name}: there is no environment {environment!r}, only {names}")
    return found


def _fields(cls: Any) -> Mapping[str, Any]:
    return getattr(getattr(cls, "Config", None), "model_fields", {})


def _configured(cls: Any, texts: Mapping[str, str]) -> "Class":
    values = {name: _json(text) for name, text in texts.items()}
    if _fields(cls):
        try:
            cls.Config.model_validate(values, by_alias=True, by_name=True)
        except ValidationError as error:
            # JSON where it fits, as for a list. Where it does not, as for the text "5", the text itself.
            wrong = {str(each["loc"][0]) for each in error.errors() if each["loc"]}
            values |= {name: texts[name] for name in wrong & texts.keys()}
    try:
        return cls.configured(**values)  # type: ignore[no-any-return]
    except InvalidEnvironment as error:
        raise WrongUsage(f"--set: {error}") from None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
