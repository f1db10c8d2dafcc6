"""The list of commands, and exit codes."""

import subprocess
import sys

import click
import pytest

from ors import __version__
from ors.cli import COMMANDS, GROUPS, ors
from ors.cli.settings import commands_of
from tests.support.commands import run


def loaded(name: str) -> click.Command:
    """A command, or one of a group: "runs show"."""
    command: click.Command | None = ors
    for word in name.split():
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    assert command is not None
    return command


NAMES = [*COMMANDS, *(name for each in COMMANDS for name in commands_of(each, loaded(each)) if name != each)]
"""All commands, with those of groups."""


def test_help_is_a_table_of_contents_of_all_commands() -> None:
    done = run("--help")
    assert done.code == 0
    for name, (_, line) in COMMANDS.items():
        assert f"{name} " in done.out
        assert line in done.out


def test_every_command_is_in_one_group() -> None:
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(COMMANDS)
    shown = run("--help").out
    assert [shown.index(f"\n{title}:\n") for title in GROUPS] == sorted(
        shown.index(f"\n{title}:\n") for title in ("Write", "Look", "Evaluate", "Operate")
    )


def test_help_imports_no_command_and_nothing_heavy() -> None:
    heavy = [
        "pydantic",
        "uvicorn",
        "aiohttp",
        "asyncio",
        "ors.client",
        "ors.server",
        "ors.cli.commands",
    ]
    code = (
        "import sys\nfrom ors.cli import ors\n"
        "try: ors(['--help'])\nexcept SystemExit: pass\n"
        f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("name", NAMES)
def test_the_help_of_each_command_ends_with_an_example(name: str) -> None:
    command = loaded(name)
    context = click.Context(command, parent=click.Context(ors, info_name="ors"), info_name=name)
    lines = command.get_help(context).splitlines()
    title = next(n for n, line in enumerate(lines) if line in ("Example:", "Examples:"))
    assert all(f"ors {name}" in line for line in lines[title + 1 :])
    assert lines[title + 1 :]


@pytest.mark.parametrize("name", NAMES)
def test_every_option_says_what_it_does(name: str) -> None:
    for option in loaded(name).params:
        assert not isinstance(option, click.Option) or option.help, option.name


@pytest.mark.parametrize("name", NAMES)
def test_no_help_shows_a_range_without_bounds(name: str) -> None:
    command = loaded(name)
    assert "=None" not in command.get_help(click.Context(command, info_name=name))


def test_the_version_is_the_packages() -> None:
    assert run("--version").out == f"ors, version {__version__}\n"


def test_a_command_that_does_not_exist_is_used_wrongly_and_a_near_one_is_named() -> None:
    done = run("serv")
    assert done.code == 2
    assert "Did you mean 'serve'?" in done.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["list"], 2, "Give a URL or TARGET, or --installed"),
        (["list", "http://127.0.0.1:1"], 3, "cannot be reached"),
        (["list", "127.0.0.1:1"], 3, "cannot be reached"),
        (["list", "http://"], 2, "base_url"),
        (["list", "no such thing"], 2, "neither the URL of a server, nor an installed environment"),
        (["list", "nomodule"], 3, "'nomodule' is neither the URL of a server, nor an installed"),
        (["list", ""], 2, "'' is neither the URL of a server"),
        (["list", "ftp://127.0.0.1"], 2, "'ftp://127.0.0.1' is neither the URL of a server"),
        (["list", "127.0.0.1:1/"], 3, "http://127.0.0.1:1 cannot be reached"),
        (["call", "http://127.0.0.1:1", "x", "--input", "[1]"], 2, "not a JSON object"),
        (["call", "http://127.0.0.1:1", "x", "--input", "{"], 2, "not valid JSON"),
        (["call", "http://127.0.0.1:1", "x", "--input", "@nofile"], 2, "No such file"),
        (["prompt", "http://127.0.0.1:1", "--secret", "NOT_SET"], 2, "no environment variable NOT_SET"),
    ],
)
def test_what_is_wrong_is_one_line_with_the_right_exit_code(words: list[str], code: int, said: str) -> None:
    done = run(*words)
    assert (done.code, done.out) == (code, "")
    assert said in done.err.splitlines()[-1]
