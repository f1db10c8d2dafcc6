"""Options that several commands share, and the layout of their help."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import Field, dataclass, field, fields
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from ors import JSONObject
from ors.cli.errors import WrongUsage
from ors.cli.targets.connect import chosen, completed, connected, opened
from ors.cli.targets.resolve import SET_AT_START, SETTINGS, as_url, parameters
from ors.client import Session

if TYPE_CHECKING:
    from ors.openreward.hosting import Hosting

UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
F = TypeVar("F", bound=Callable[..., Any])


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


class _Grouped(click.Option):
    """Option that the help lists under the title of its group."""

    def __init__(self, *args: Any, group: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.group = group


def under(title: str) -> Callable[..., Callable[[F], F]]:
    """`click.option` for options that the help lists under this title."""
    return partial(click.option, cls=_Grouped, group=title)


def stacked(*options: Callable[[F], F]) -> Callable[[F], F]:
    """One decorator for several, which the help lists in this order."""

    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def flag(text: str, **arguments: Any) -> Any:
    """A field of a class of options, with its help and further arguments of `click.option`."""
    return field(metadata={"help": text, **arguments})


def name_of(option: Field[Any]) -> str:
    return f"--{option.name.replace('_', '-')}"


class Parsed(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has no such arguments
    """A type of options whose text a function reads; its ValueError says what is wrong."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str | int | float):  # a table of pyproject.toml, or converted already
            return value
        try:
            return self._read(str(value))
        except OSError as error:
            self.fail(f"{error.strerror}: {error.filename}", param, ctx)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", text.lower())
    if found is None:
        raise ValueError(f"{text!r} is not a size, such as 500M or 2G")
    return int(float(found[1]) * UNITS[found[2]])


BYTES = Parsed("SIZE", _bytes)
"""An amount of memory: 500M, 2G, 2GiB, or a number of bytes."""


def _image(text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not equals or not Path(path).exists():
        raise ValueError(f"{text}: expected NAME=PATH, with a path that exists")
    return name, str(Path(path).resolve())


@dataclass(frozen=True)
class ImageFlags:
    """Where the images of sandboxes are."""

    image: Sequence[tuple[str, str]] = flag(
        "Location of an image: its archive, that archive unpacked, or its root folder. Repeatable.",
        type=Parsed("NAME=PATH", _image),
        multiple=True,
    )

    def tell(self) -> None:
        """Lets this process and those that it starts find the images."""
        if self.image:
            from ors.sandbox.images import VARIABLE

            os.environ[VARIABLE] = "\n".join(map("=".join, self.image))


@dataclass(frozen=True)
class HostingFlags(ImageFlags):
    """How sandboxes for programs that use openreward are made."""

    host_root: bool = flag("Use this machine's programs for all other images.", is_flag=True)
    open_network: bool = flag("Give sandboxes the network that they ask for.", is_flag=True)
    sandbox_memory: int | None = flag("Maximum memory of one sandbox; beyond it, 400.", type=BYTES)

    def hosting(self, data: Path | None) -> "Hosting":
        from ors.openreward.hosting import Hosting

        self.tell()
        return Hosting(dict(self.image), self.host_root, data, self.open_network, self.sandbox_memory)


def flags_of(kind: type[Any], group: str = "Options") -> Callable[[F], F]:
    """Decorator that adds the flags of a class."""
    option, flags = under(group), []
    for each in fields(kind):
        if about := dict(each.metadata):
            flags.append(option(*about.pop("names", (name_of(each),)), **about))
    return stacked(*flags)


def options(group: str, name: str, kind: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator that adds the flags of a class, and passes them to the command as one value of it."""
    return lambda command: flags_of(kind, group)(gathered(name, kind)(command))


def gathered(name: str, kind: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator that passes the options that are fields of a class to the command as one value of it."""

    def gather(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def with_group(**given: Any) -> None:
            taken = {each.name: given.pop(each.name) for each in fields(kind) if each.name in given}
            command(**given, **{name: kind(**taken)})

        return with_group

    return gather


def given(name: str) -> bool:
    """Whether an option is set: on the command line, by a variable or in pyproject.toml."""
    return click.get_current_context().get_parameter_source(name) is not ParameterSource.DEFAULT


def typed(name: str) -> bool:
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


TARGET = click.Path()
"""A URL or code; shells complete it as a path."""
WHERE = stacked(click.argument("where", metavar="URL|TARGET", type=TARGET), parameters)
COUNT = click.IntRange(min=1)
INDEX = click.IntRange(min=0)
PORT = click.IntRange(0, 65535)
for each in (COUNT, INDEX, PORT):
    each.name = "integer"  # help would say "INTEGER RANGE"
FOLDER = click.Path(file_okay=False, path_type=Path)
EXISTING_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
for place in (FOLDER, EXISTING_FOLDER):
    place.name = "folder"


def _json_object(text: str) -> JSONObject:
    if text == "-":
        text = sys.stdin.read()
    elif text.startswith("@"):
        text = Path(text[1:]).read_text(encoding="utf-8")
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"not valid JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError("not a JSON object, such as '{\"answer\": 4}'")
    return found


JSON = Parsed("JSON", _json_object)


def _secret(text: str) -> tuple[str, str]:
    name, equals, secret = text.partition("=")
    if not equals and name not in os.environ:
        raise ValueError(f"there is no environment variable {name}")
    return name, secret if equals else os.environ[name]


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
access = under("Access")
api_key = access(
    "--api-key", metavar="KEY", envvar="ORS_API_KEY", help="API key of the server. Safer: ORS_API_KEY."
)
environment = click.option("--env", metavar="NAME", help="Environment to use, if there are several.")
secrets = access(
    "--secret",
    type=Parsed("NAME[=VALUE]", _secret),
    multiple=True,
    help="Secret for the environment; NAME alone means $NAME.",
)
traceback = click.option(
    "--traceback", is_flag=True, help="Show the whole traceback of an exception in a TARGET's code."
)
task_choice = stacked(
    click.option("--split", metavar="NAME", help="Split of the task.  [default: the first]"),
    click.option("--index", type=INDEX, default=0, help="Index of the task."),
    click.option("--task", type=JSON, help="A task of your own instead: JSON, @file, or - for stdin."),
)
images = click.option("--images", type=FOLDER, help="Folder for images.  [default: a temporary one]")


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
        with connected(self.where, self.api_key, traceback=self.traceback) as client:
            env = chosen(client, self.env)
            local = as_url(self.where) is None
            secrets = completed(env.name, env.required_secrets(), dict(self.secret), local=local)
            with opened(env, self.split, self.index, self.task, secrets) as session:
                yield session


_choosing = stacked(environment, task_choice, secrets, images, traceback, api_key)


def opening(command: Callable[..., None]) -> Callable[..., None]:
    """Adds `--images` and the options that choose a session, passed to the command as one `choice`."""
    return _choosing(gathered("choice", Choice)(command))
