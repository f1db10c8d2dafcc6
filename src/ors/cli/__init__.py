"""The `ors` command. Each subcommand is imported only when it is used."""

import difflib
from importlib import import_module

import click

from ors.cli import errors as faults
from ors.cli import settings
from ors.cli.errors import open_streams

__all__ = ["COMMANDS", "main", "ors"]

COMMANDS = {
    "init": ("init:init", "Create a package with a new environment."),
    "serve": ("serve:serve", "Serve environments over HTTP."),
    "run": ("run:run", "Run a file written for openreward or ors-sdk, unchanged."),
    "route": ("route:route", "Put several servers behind one address."),
    "hosts": ("route:hosts", "List, scale and drain the servers in a Ray cluster."),
    "list": ("look:list_command", "List environments with their tasks and tools."),
    "tasks": ("look:tasks", "List the tasks of a split, or show one."),
    "tools": ("look:tools", "List tools and their parameters."),
    "prompt": ("look:prompt", "Show the prompt of a task."),
    "call": ("look:call", "Call one tool on a task."),
    "play": ("play:play", "Play an episode by hand."),
    "inspect": ("browse:inspect_command", "Look at a server in a browser."),
    "eval": ("eval:eval_command", "Let an agent play tasks, and report how well it did."),
    "mcp": ("mcp:mcp", "Open an episode for a coding agent, over MCP."),
    "view": ("browse:view", "Look at recorded runs in a browser."),
    "test": ("check:test_command", "Test whether an environment is fit to train on."),
    "card": ("init:card", "Write the card of an environment into its README, or check it."),
    "replay": ("replay:replay_command", "Play the recorded calls of a run again."),
    "regrade": ("regrade:regrade", "Recompute the rewards of a recorded run, without the agent."),
    "check": ("check:check", "Check a server against the standard."),
    "bench": ("bench:bench", "Measure calls and episodes per second."),
    "runs": ("runs:runs", "List, show, compare, check and export runs."),
    "sandbox": ("sandbox:sandbox", "Check how this machine isolates programs, and pull images."),
    "sandboxes": ("sandbox:sandboxes", "Serve sandboxes to programs that use openreward."),
}
"""Where in `commands/` each command is defined, and its line in `ors --help`, which imports none of them."""

GROUPS = {
    "Write": ("init", "play", "test", "card"),
    "Look": ("list", "tasks", "tools", "prompt", "call", "inspect"),
    "Evaluate": ("eval", "mcp", "runs", "view", "replay", "regrade"),
    "Operate": ("serve", "run", "route", "hosts", "check", "bench", "sandbox", "sandboxes"),
}
"""The commands as `ors --help` lists them."""


class Commands(click.Group):
    """Command group that imports one command at a time."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(f"ors.cli.commands.{module}"), attribute)
        settings.name_variables(cmd_name, command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolves as click does, applies pyproject.toml, and suggests a close name for a typo."""
        close = difflib.get_close_matches(args[0], COMMANDS, n=1)
        if close and args[0] not in COMMANDS:
            raise click.UsageError(f"No such command {args[0]!r}. Did you mean {close[0]!r}?", ctx)
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and name is not None:
            if unknown := settings.unknown(name, command):
                text = f"pyproject.toml sets {unknown[0]} in [tool.ors], but there is no such option"
                raise click.UsageError(text, ctx)
            if not ctx.resilient_parsing:
                ctx.default_map = {name: settings.defaults(name, command)}
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:10}", COMMANDS[name][1]) for name in names])

    def invoke(self, ctx: click.Context) -> object:
        with faults.in_one_line():
            return super().invoke(ctx)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True, "max_content_width": 110},
)
@click.version_option(package_name="ors-kit", prog_name="ors")
def ors() -> None:
    """Create, serve, test and measure environments of the Open Reward Standard.

    \b
    URL is the address of a server, such as http://127.0.0.1:8080.
    TARGET is code: package.module, package.module:Class, path/file.py,
    path/file.py:Class, or a folder.

    Exit codes: 0 success, 1 a fault was found, 2 wrong usage, 3 cannot connect or start.
    """


def main() -> None:
    open_streams()
    ors(prog_name="ors")
