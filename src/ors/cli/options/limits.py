"""Flags for the limits of the server, generated from `ors.Limits`."""

import ast
import dataclasses
import inspect
import textwrap
import types
from typing import Any, get_args, get_type_hints

import click

from ors import Limits
from ors.cli.options.shared import F, Grouped


class _Number(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has no such arguments
    """A number of 0 or more, or "none" if the limit can be switched off."""

    def __init__(self, hint: Any) -> None:
        self._optional = isinstance(hint, types.UnionType)
        self._number: type[int] | type[float] = get_args(hint)[0] if self._optional else hint
        self.name = "integer" if self._number is int else "number"
        if self._optional:
            self.name += "|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | None:
        """Reads the number; None means no limit."""
        if self._optional and value == "none":
            return None
        try:
            number = self._number(value)
        except (TypeError, ValueError):
            number = -1
        if not number >= 0:
            self.fail(f"{value!r} is not a {self.name} of 0 or more", param, ctx)
        return number


def limit_flags(command: F) -> F:
    """Adds a flag for each field of `ors.Limits`, with the field's docstring as its help."""
    hints, words = get_type_hints(Limits), _words()
    for field in reversed(dataclasses.fields(Limits)):
        help = field.metadata.get("help") or words.get(field.name, "")
        flag = click.option(
            f"--{field.name.replace('_', '-')}",
            cls=Grouped,
            group="Limits",
            type=_Number(hints[field.name]),
            default="none" if field.default is None else field.default,
            show_default=True,
            help=help,
        )
        command = flag(command)
    return command


def _words() -> dict[str, str]:
    """Docstring of each field; empty if the source is not installed."""
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(Limits))).body[0]
    except OSError:
        return {}
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            match below:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    found[field.target.id] = text
    return found
