"""Settings: options with their variables, limits, options of the client, variables of model providers."""

import ast
import dataclasses
import inspect
import re
from importlib import import_module

import click

from ors.cli.settings import SECRET, label, settable
from ors.providers import MODEL_NAMES, api_of
from scripts.site import commands
from scripts.site.markdown import code, table


def settings(name: str) -> str:
    """The options of a command, with their variables and keys."""
    command = commands.found()[name]
    context = click.Context(command, info_name=f"ors {name}")
    rows = []
    for option in settable(command):
        key = label(option)
        held = "" if key in SECRET or str(option.name) in SECRET else key
        shown = (option.get_help_record(context) or ("", ""))[1].replace("[", "(").replace("]", ")")
        rows.append((code(max(option.opts, key=len)), code(str(option.envvar)), code(held), shown))
    return table(("option", "variable", "key in the file", "meaning"), rows)


def fields(place: str, flags: bool = False) -> str:
    """The fields of a dataclass, with their defaults and docstrings; with `flags`, as options too."""
    module, _, name = place.partition(":")
    kind = getattr(import_module(module), name)
    texts = docstrings(kind)
    rows = []
    for field in dataclasses.fields(kind):
        option = f"--{field.name.replace('_', '-')}" if field.metadata.get("is_option") else ""
        named = [code(field.name), *([code(option)] if flags else [])]
        text = field.metadata.get("help") or texts[field.name]
        rows.append((*named, code(shown(field.default)), text))
    return table(("field", *(["option"] if flags else []), "default", "meaning"), rows)


def docstrings(kind: type) -> dict[str, str]:
    """The text below each field of a class."""
    body = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
        ):
            found[field.target.id] = str(ast.literal_eval(text.value))
    return found


def shown(value: object) -> str:
    """A default as people write it."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 2**20 and value % 2**20 == 0:
        return f"{value // 2**20} MiB"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def model_variables() -> str:
    """The variables that agents of model providers read."""
    rows = [
        (code(name), ", ".join(map(code, api.key_variables)), code(api.url_variable))
        for name, api in ((name, api_of(format)) for name, format in MODEL_NAMES.items())
    ]
    return table(("provider", "key", "address"), rows)


def variables_in_source(text: str) -> set[str]:
    """The names of variables that a text of source code mentions."""
    return set(re.findall(r"\"(ORS_[A-Z_]+)\"", text))
