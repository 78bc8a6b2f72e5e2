"""Classes of commands: those that call a facade, and groups, which show whole summaries of their commands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from headrace.cli.facade.options import CONNECTION, make_connection_options

SUMMARY_CHARS_MAX = 60
"""Longest first sentence of a command's help, which is its line in a list of commands."""


class FacadeCommand(click.Command):
    """A command that calls a facade: it takes the connection options, which its help names on the last line."""

    def __init__(self, name: str | None, **attributes: Any) -> None:
        super().__init__(name, **attributes)
        self.params += make_connection_options()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own = (param for param in self.get_params(ctx) if param.name not in CONNECTION)
        write_options("Options", own, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        formatter.write_text(f"Connection options: --{', --'.join(CONNECTION.values())}; see headrace --help.")


def write_options(
    title: str, params: Iterable[click.Parameter], ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    options = (param for param in params if isinstance(param, click.Option))
    if records := [record for option in options if (record := option.get_help_record(ctx))]:
        with formatter.section(title):
            formatter.write_dl(records)


class CommandGroup(click.Group):
    """A group of commands that call a facade."""

    command_class = FacadeCommand

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.write_commands("Commands", self.list_commands(ctx), ctx, formatter)

    def write_commands(
        self, title: str, names: Iterable[str], ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        commands = [(name, command) for name in names if (command := self.get_command(ctx, name))]
        with formatter.section(title):
            formatter.write_dl([(name, command.get_short_help_str(SUMMARY_CHARS_MAX)) for name, command in commands])
