"""`ors completion`: prints the completion script for a shell."""

import click
from click.shell_completion import get_completion_class

from ors.cli.options.shared import Command

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
