"""The `ors` command: a table of contents whose commands are imported when they are used."""

import difflib
from importlib import import_module

import click

from ors.cli import errors as faults
from ors.cli import settings
from ors.cli.standard_streams import open_streams

__all__ = ["COMMANDS", "main", "ors"]

COMMANDS = {
    "init": ("ors.cli.commands.init:init", "Make a package with a new environment."),
    "serve": ("ors.cli.commands.serve:serve", "Serve environments over HTTP."),
    "route": ("ors.cli.commands.route:route", "Put several servers behind one address."),
    "hosts": ("ors.cli.commands.hosts:hosts", "List, scale and drain the servers in a Ray cluster."),
    "list": ("ors.cli.commands.listing:list_command", "List environments, their tasks and tools."),
    "tasks": ("ors.cli.commands.listing:tasks", "List the tasks of a split, or show one."),
    "tools": ("ors.cli.commands.listing:tools", "List tools and their parameters."),
    "prompt": ("ors.cli.commands.episode:prompt", "Show what an agent is told first."),
    "call": ("ors.cli.commands.episode:call", "Call one tool on a task."),
    "play": ("ors.cli.commands.play:play", "Play an episode by hand."),
    "inspect": ("ors.cli.commands.inspect:inspect_command", "Look at a server in a browser."),
    "test": ("ors.cli.commands.test:test_command", "Test whether an environment is fit to train on."),
    "check": ("ors.cli.commands.check:check", "Check a server against the standard."),
    "bench": ("ors.cli.commands.bench:bench", "Measure calls and episodes per second."),
    "config": ("ors.cli.commands.config:config", "Show every setting and where it came from."),
    "completion": ("ors.cli.commands.completion:completion", "Print a shell's completion script."),
}
"""Each command's place and its line in `ors --help`, which imports none of them."""


class Commands(click.Group):
    """The commands, imported one at a time."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, in the order in which one meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command, with its environment variables."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        settings.name_variables(cmd_name, command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with what pyproject.toml sets; a name that is nearly right is told so."""
        close = difflib.get_close_matches(args[0], COMMANDS, n=1)
        if close and args[0] not in COMMANDS:
            raise click.UsageError(f"No such command {args[0]!r}. Did you mean {close[0]!r}?", ctx)
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and (unknown := settings.unknown(str(name), command)):
            raise click.UsageError(f"pyproject.toml sets [tool.ors] {unknown[0]}, which is no option", ctx)
        if command is not None and not ctx.resilient_parsing:
            ctx.default_map = {str(name): settings.defaults(str(name), command)}
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table of contents, from the table above."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> object:
        """Runs the command; its errors become one line and an exit code."""
        with faults.in_one_line():
            return super().invoke(ctx)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ors-kit", prog_name="ors")
def ors() -> None:
    """Write, serve, try and measure environments of the Open Reward Standard.

    \b
    URL is where a server listens, such as http://127.0.0.1:8080.
    TARGET is code: package.module, package.module:Class, path/file.py,
    path/file.py:Class, or a folder.

    Exit codes: 0 fine, 1 found a fault, 2 used wrongly, 3 could not reach or start.
    """


def main() -> None:
    """The console script."""
    open_streams()
    ors(prog_name="ors")
