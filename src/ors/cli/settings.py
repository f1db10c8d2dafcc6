"""Options from environment variables and from `[tool.ors]` in pyproject.toml."""

import os
import re
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from ors.cli.errors import WrongUsage, shown_path

SECRET = frozenset({"api_key", "secret"})
"""Options that are never shown and never read from a file."""
_SECRET_VARIABLE = re.compile(r"ORS_(\w+_)?(API_KEYS?|SECRET)")


def settable(command: click.Command) -> list[click.Option]:
    return [
        option
        for option in command.params
        if isinstance(option, click.Option) and option.name != "help" and not option.is_eager
    ]


def label(option: click.Option) -> str:
    """Name of an option in files and variables: `log_level` for `--log-level`."""
    return max(option.opts, key=len).lstrip("-").replace("-", "_")


def commands_of(name: str, command: click.Command) -> dict[str, click.Command]:
    """The command, or those of a group: "runs show" for `ors runs show`."""
    if isinstance(command, click.Group):
        return {f"{name} {each}": found for each, found in command.commands.items()}
    return {name: command}


def name_variables(command_name: str, command: click.Command) -> None:
    """Gives every option of a command, or of the commands of a group, its variable: ORS_SERVE_PORT."""
    for name, each in commands_of(command_name, command).items():
        for option in settable(each):
            if option.envvar is None:
                option.envvar = f"ORS_{name}_{label(option)}".upper().replace(" ", "_")


def defaults(command_name: str, command: click.Command) -> dict[str, Any]:
    """Options that pyproject.toml sets: `[tool.ors]`, overridden by `[tool.ors.<command>]`.

    Those of a group are by command, each overridden by `[tool.ors.<group>.<command>]`.
    """
    if isinstance(command, click.Group):
        return {each: defaults(f"{command_name} {each}", found) for each, found in command.commands.items()}
    table = file_settings()[1]
    shared = {key: value for key, value in table.items() if not isinstance(value, dict)}
    values = {**shared, **_own_table(table, command_name)}
    names = {label(option): str(option.name) for option in settable(command)}
    return {names[key]: value for key, value in values.items() if key in names}


def unknown(command_name: str, command: click.Command) -> list[str]:
    """Keys of `[tool.ors.<command>]` that are not options of the command, or commands of the group."""
    known = {label(option) for option in settable(command)}
    found = []
    if isinstance(command, click.Group):
        known |= set(command.commands)
        for name, each in commands_of(command_name, command).items():
            found += unknown(name, each)
    own = _own_table(file_settings()[1], command_name)
    return [f"{command_name}.{key}".replace(" ", ".") for key in own if key not in known] + found


def _own_table(table: dict[str, Any], command_name: str) -> dict[str, Any]:
    for name in command_name.split():
        found = table.get(name)
        table = found if isinstance(found, dict) else {}
    return table


def file_settings() -> tuple[Path | None, dict[str, Any]]:
    """Finds the nearest pyproject.toml, here or above, that has a table `[tool.ors]`; returns both."""
    for folder in (Path.cwd(), *Path.cwd().parents):
        path = folder / "pyproject.toml"
        if not path.is_file():
            continue
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("ors")
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise WrongUsage(f"{shown_path(path)} is not valid TOML: {error}") from None
        if isinstance(table, dict):
            return path, _with_underscores(table, path)
        if table is not None:
            raise WrongUsage(f"{shown_path(path)}: [tool.ors] must be a table")
    return None, {}


def _with_underscores(table: dict[str, Any], path: Path) -> dict[str, Any]:
    named = {key.replace("-", "_"): value for key, value in table.items()}
    for key, value in named.items():
        if key in SECRET:
            raise WrongUsage(f"{shown_path(path)}: {key!r} must not be in a file; set a variable instead")
        if isinstance(value, dict):
            named[key] = _with_underscores(value, path)
    return named


def erase_secrets() -> None:
    """Removes our secret variables, once options are read: programs that a tool starts would see them."""
    for name in filter(_SECRET_VARIABLE.fullmatch, list(os.environ)):
        entry = os.fsencode(f"{name}={os.environ.pop(name)}") + b"\0"
        with suppress(OSError):  # another system, or one that protects this memory
            _overwrite(entry)


def _overwrite(entry: bytes) -> None:
    """Overwrites a variable where /proc/PID/environ shows it: what this process was started with."""
    with open("/proc/self/stat", "rb") as file:
        start, end = map(int, file.read().rpartition(b")")[2].split()[47:49])  # see proc(5)
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(start)
        place = (b"\0" + memory.read(end - start)).find(b"\0" + entry)
        if place >= 0:
            memory.seek(start + place)
            memory.write(bytes(len(entry) - 1))
