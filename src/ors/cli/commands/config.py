"""`ors config` and `ors completion`: settings and where they come from, and completion for shells."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import get_completion_class

from ors.cli import COMMANDS
from ors.cli.errors import CommandError, shown_path
from ors.cli.options.shared import Command, as_json
from ors.cli.output.printing import print_json, print_table
from ors.cli.settings import SECRET, commands_of, defaults, file_settings, label, settable, unknown


@dataclass(frozen=True)
class Setting:
    command: str
    option: str
    value: Any
    source: str

    def as_json(self) -> dict[str, Any]:
        value = str(self.value) if isinstance(self.value, Path) else self.value
        return {"command": self.command, "option": self.option, "value": value, "source": self.source}

    @property
    def shown(self) -> str:
        if self.value is None or self.value == ():
            return "-"
        return str(self.value) if isinstance(self.value, str | Path) else json.dumps(self.value)


@click.command(cls=Command, examples=["ors config serve", "ORS_SERVE_PORT=9000 ors config --json"])
@click.argument("command", required=False, type=click.Choice([*COMMANDS]), metavar="[COMMAND]")
@as_json
@click.pass_context
def config(ctx: click.Context, command: str | None, as_json: bool) -> None:
    """Show every setting and where it comes from, for all commands or one COMMAND.

    \b
    The first of these that sets an option wins:
      the command line        ors serve --port 9000
      a variable              ORS_SERVE_PORT=9000
      pyproject.toml          [tool.ors.serve] port = 9000, or [tool.ors] for all
      its default
    The nearest pyproject.toml, here or in a parent folder, with a table [tool.ors] is used.
    """
    found = [setting for name in ([command] if command else COMMANDS) for setting in _settings(ctx, name)]
    if as_json:
        print_json([setting.as_json() for setting in found])
    else:
        rows = [(setting.command, setting.option, setting.shown, setting.source) for setting in found]
        print_table(("COMMAND", "OPTION", "VALUE", "FROM"), rows)
    if command is None:
        _check_known(ctx, {setting.option for setting in found})


def _settings(ctx: click.Context, name: str) -> Iterator[Setting]:
    for full_name, command in commands_of(name, _command(ctx, name)).items():
        set_there = defaults(full_name, command)
        within = click.Context(command, parent=ctx.find_root(), info_name=full_name, default_map=set_there)
        for option in settable(command):
            if not option.hidden:
                yield _setting(within, full_name, option)


def _command(ctx: click.Context, name: str) -> click.Command:
    root = ctx.find_root()
    assert isinstance(root.command, click.Group)
    command = root.command.get_command(root, name)
    assert command is not None
    return command


def _setting(ctx: click.Context, name: str, option: click.Option) -> Setting:
    try:
        option.handle_parse_result(ctx, {}, [])
    except click.MissingParameter:
        return Setting(name, label(option).replace("_", "-"), None, "default")
    source = ctx.get_parameter_source(str(option.name))
    value = ctx.params[str(option.name)]
    if isinstance(value, Enum):  # click 8.3 and later: a sentinel for options that are not set
        value = None
    if label(option) in SECRET:
        value = "(set)" if value else None
    return Setting(name, label(option).replace("_", "-"), value, _from(option, source))


def _from(option: click.Option, source: ParameterSource | None) -> str:
    if source is ParameterSource.ENVIRONMENT:
        return str(option.envvar)
    if source is ParameterSource.DEFAULT_MAP:
        return shown_path(file_settings()[0] or "pyproject.toml")
    return "default"


def _check_known(ctx: click.Context, options: set[str]) -> None:
    path, table = file_settings()
    known = {option.replace("-", "_") for option in options} | set(COMMANDS)
    wrong = sorted(key for key in table if key not in known)
    wrong += [key for name in COMMANDS for key in unknown(name, _command(ctx, name))]
    if wrong:
        raise CommandError(f"{shown_path(path or '')} sets options that no command has: {', '.join(wrong)}")


SHELLS = ("bash", "zsh", "fish")


@click.command(cls=Command, examples=["ors completion bash > ors-completion.sh"])
@click.argument("shell", type=click.Choice(SHELLS), metavar="SHELL")
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for a SHELL: bash, zsh or fish.

    \b
    bash: eval "$(ors completion bash)" in ~/.bashrc
    zsh:  eval "$(ors completion zsh)" in ~/.zshrc
    fish: ors completion fish > ~/.config/fish/completions/ors.fish
    """
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(ctx.find_root().command, {}, "ors", "_ORS_COMPLETE").source())
