"""Options that several commands share, and the layout of their help."""

import ast
import inspect
import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from ors import JSONObject
from ors.cli.errors import WrongUsage
from ors.cli.output import logging as logs
from ors.cli.targets.connect import chosen, completed, connected, opened
from ors.cli.targets.resolve import as_url
from ors.cli.targets.variants import SET_AT_START, SETTINGS, parameters
from ors.client import Session

F = TypeVar("F", bound=Callable[..., Any])
Flags = tuple[tuple[str, dict[str, Any]], ...]
"""Names of options, each with its arguments for `click.option`."""


class Command(click.Command):
    """Command whose help ends with examples that can be run as they are."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples

    def invoke(self, ctx: click.Context) -> Any:
        """Keeps `--set` for `environments` and `served`, which all TARGETs come to."""
        settings = ctx.meta[SETTINGS] = ctx.params.pop("settings", ())
        if settings and as_url(ctx.params.get("where") or "") and typed("settings"):
            raise WrongUsage(SET_AT_START)
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                groups.setdefault(getattr(param, "group", "Options"), []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Example" if len(self.examples) == 1 else "Examples"):
            for line in self.examples:
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")


class CommandGroup(Command, click.Group):
    """Group of commands, whose help lists them before its examples."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


class Grouped(click.Option):
    """Option that the help lists under the title of its group."""

    def __init__(self, *args: Any, group: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.group = group


def add_flags(group: str, flags: Flags) -> Callable[[F], F]:

    def add(command: F) -> F:
        for name, arguments in reversed(flags):
            command = click.option(name, cls=Grouped, group=group, **arguments)(command)
        return command

    return add


def field_docs(kind: type) -> dict[str, str]:
    """First line of each field's docstring; empty if the source is not installed."""
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    except OSError:
        return {}
    assert isinstance(body, ast.ClassDef)
    found = {}
    for each, below in zip(body.body, body.body[1:], strict=False):
        match each, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = text.partition("\n")[0]
    return found


def flag(text: str, **arguments: Any) -> Any:
    """A field of a class of options, with its help and further arguments of `click.option`."""
    shown = arguments.get("default") is not None
    return field(metadata={"help": text, "show_default": shown, **arguments})


def flags_of(kind: type[Any]) -> Flags:
    """The fields of a class that were made by `flag`, as options; "names" overrides the name of one."""
    return tuple(
        (about.pop("names", f"--{each.name.replace('_', '-')}"), about)
        for each in fields(kind)
        if (about := dict(each.metadata))
    )


@dataclass(frozen=True)
class ImageFlags:
    """Where the images of sandboxes are."""

    image: Sequence[str] = flag(
        "Where an image is: an archive or folder of it, or a folder with its files. Repeatable.",
        multiple=True,
        metavar="NAME=PATH",
    )

    @property
    def images(self) -> dict[str, str]:
        """Paths of images, by their names."""
        split = [each.partition("=") for each in self.image]
        for name, equals, path in split:
            if not equals or not Path(path).exists():
                raise WrongUsage(f"--image {name}{equals}{path}: expected NAME=PATH, with a path that exists")
        return {name: str(Path(path).resolve()) for name, _, path in split}

    def tell(self) -> None:
        """Lets this process and those that it starts find the images."""
        if self.image:
            from ors.sandbox.images import VARIABLE

            os.environ[VARIABLE] = "\n".join(map("=".join, self.images.items()))


def options(group: str, name: str, kind: type[Any]) -> Callable[[F], Callable[..., None]]:
    """Decorator that adds the flags of a class, and passes them to the command as one value of it."""
    return lambda command: add_flags(group, flags_of(kind))(gathered(name, kind)(command))


def gathered(name: str, kind: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator that passes the options that are fields of a class to the command as one value of it."""

    def gather(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def with_group(**given: Any) -> None:
            value = _taken(kind, given)
            command(**given, **{name: value})

        return with_group

    return gather


def _taken(kind: type[Any], given: dict[str, Any]) -> Any:
    return kind(**{field.name: given.pop(field.name) for field in fields(kind) if field.name in given})


def given(name: str) -> bool:
    """Whether an option is set: on the command line, by a variable or in pyproject.toml."""
    return click.get_current_context().get_parameter_source(name) is not ParameterSource.DEFAULT


def typed(name: str) -> bool:
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


TARGET = click.Path()
"""A URL or code; shells complete it as a path."""


def WHERE(command: F) -> F:  # noqa: N802
    return click.argument("where", metavar="URL|TARGET", type=TARGET)(parameters(command))


class _JSONObject(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has no such arguments
    """A JSON object: as text, `@file`, or `-` for standard input."""

    name = "JSON"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> JSONObject:
        if isinstance(value, dict):
            return value
        try:
            if value == "-":
                value = sys.stdin.read()
            elif value.startswith("@"):
                value = Path(value[1:]).read_text(encoding="utf-8")
            found = json.loads(value)
        except OSError as error:
            self.fail(f"{error.strerror}: {error.filename}", param, ctx)
        except ValueError as error:
            self.fail(f"not valid JSON: {error}", param, ctx)
        if not isinstance(found, dict):
            self.fail("not a JSON object, such as '{\"answer\": 4}'", param, ctx)
        return found


JSON = _JSONObject()


class _Secret(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has no such arguments
    """NAME=VALUE, or NAME alone for the value of the variable NAME."""

    name = "NAME[=VALUE]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, equals, secret = value.partition("=")
        if not equals and name not in os.environ:
            self.fail(f"there is no environment variable {name}", param, ctx)
        return name, secret if equals else os.environ[name]


def as_json(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def api_key(command: F) -> F:
    text = "API key of the server. Safer: ORS_API_KEY."
    return click.option("--api-key", metavar="KEY", envvar="ORS_API_KEY", help=text)(command)


def address_flags(command: F) -> F:
    text = "Address to listen on. Any but loopback needs a key or --insecure."
    command = click.option(
        "--port",
        type=click.IntRange(0, 65535),
        default=8080,
        show_default=True,
        help="Port to listen on; 0 picks a free one.",
    )(command)
    return click.option("--host", default="127.0.0.1", show_default=True, help=text)(command)


def log_flags(command: F) -> F:
    command = click.option("--log-json", is_flag=True, help="Log one JSON object per line.")(command)
    return click.option(
        "--log-level",
        type=click.Choice(logs.LEVELS),
        default="info",
        show_default=True,
        help="Minimum level to log to standard error.",
    )(command)


def environment(command: F) -> F:
    return click.option("--env", metavar="NAME", help="Environment to use, if there are several.")(command)


def secrets(command: F) -> F:
    return click.option(
        "--secret", type=_Secret(), multiple=True, help="Secret for the environment; NAME alone means $NAME."
    )(command)


def traceback(command: F) -> F:
    return click.option(
        "--traceback", is_flag=True, help="Show the whole traceback of an exception in a TARGET's code."
    )(command)


def task_choice(command: F) -> F:
    for option in (
        click.option("--task", type=JSON, help="A task of your own instead: JSON, @file, or - for stdin."),
        click.option(
            "--index", type=click.IntRange(min=0), default=0, show_default=True, help="Index of the task."
        ),
        click.option("--split", metavar="NAME", help="Split of the task.  [default: the first]"),
    ):
        command = option(command)
    return command


def images(command: F) -> F:
    return click.option(
        "--images",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="FOLDER",
        help="Folder for images.  [default: a temporary one]",
    )(command)


@dataclass(frozen=True)
class Choice:
    """The chosen task, and how its session is opened."""

    where: str
    env: str | None
    api_key: str | None
    split: str | None
    index: int
    task: JSONObject | None
    secret: Sequence[tuple[str, str]]
    traceback: bool = False

    @contextmanager
    def opened(self) -> Iterator[Session]:
        """Yields the open session, and ends it afterwards."""
        with connected(self.where, self.api_key, traceback=self.traceback) as client:
            env = chosen(client, self.env)
            local = as_url(self.where) is None
            secrets = completed(env.name, env.required_secrets(), dict(self.secret), local=local)
            with opened(env, self.split, self.index, self.task, secrets) as session:
                yield session


def opening(command: Callable[..., None]) -> Callable[..., None]:
    """Adds `--images` and the options that choose a session, passed to the command as one `choice`."""
    command = gathered("choice", Choice)(command)
    for option in (api_key, traceback, images, secrets, task_choice, environment):
        command = option(command)
    return command
