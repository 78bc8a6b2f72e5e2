"""headrace completion: completion of commands and options in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands in a shell.

    Add to ~/.bashrc: eval "$(headrace completion bash)". To ~/.zshrc: eval "$(headrace completion zsh)". In fish:
    headrace completion fish > ~/.config/fish/completions/headrace.fish
    """
    completion_class = get_completion_class(shell)
    assert completion_class is not None, "click has it"
    root = context.find_root()
    click.echo(completion_class(root.command, {}, "headrace", "_HEADRACE_COMPLETE").source())
