"""The commands of `ors`, from their own help."""

import click

from ors.cli import COMMANDS
from ors.cli import ors as command_line
from ors.cli.settings import commands_of

WIDTH = 88


def found() -> dict[str, click.Command]:
    """All commands by name, those of groups after their group: "runs", "runs show"."""
    context = click.Context(command_line)
    all_commands: dict[str, click.Command] = {}
    for name in COMMANDS:
        command = command_line.get_command(context, name)
        if command is not None:
            all_commands |= {name: command} | commands_of(name, command)
    return all_commands


def help_text(name: str, command: click.Command) -> str:
    """The text that `--help` prints."""
    context = click.Context(
        command, info_name=f"ors {name}".strip(), max_content_width=WIDTH, terminal_width=WIDTH
    )
    return command.get_help(context)


def text() -> str:
    """A section for each command."""
    sections = [f"## ors {{: #ors }}\n\n```text\n{help_text('', command_line)}\n```\n"]
    for name, command in found().items():
        level = "###" if " " in name else "##"
        sections.append(f"{level} ors {name}\n\n```text\n{help_text(name, command)}\n```\n")
    return "\n".join(sections)
