"""The command line: an HTTP client of the facade; `up` starts the services as processes."""

from __future__ import annotations

import errno
import os
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Any

import click

from headrace.cli.facade.command import CommandGroup, write_options
from headrace.cli.facade.options import CONNECTION, make_connection_options

SECTIONS = {
    "Start": (
        "commands.init",
        "commands.up",
        "operating.check",
        "operating.doctor",
        "commands.health",
        "commands.simulate",
    ),
    "Ask": tuple(f"commands.{name}" for name in ("ask", "chat", "chats", "follow", "context", "facts")),
    "Answer": ("commands.gates", "commands.authorizations"),
    "Automate": ("commands.schedules", "commands.webhooks"),
    "Operate": (
        *(f"operating.{name}" for name in ("agents", "tools", "providers", "runs", "replicas", "limits", "spend")),
        *(f"operating.{name}" for name in ("keys", "audit", "data", "backups", "database")),
    ),
    "Test": (*(f"testing.{name}" for name in ("eval", "record", "replay", "fork")), "commands.bench"),
    "Shell": ("commands.completion",),
}
"""Modules of commands by section of the help; each command has the name of its module."""

COMMANDS = {path.rpartition(".")[2]: f"headrace.cli.{path}" for paths in SECTIONS.values() for path in paths}
"""Modules of commands, by name."""


class _Commands(CommandGroup):
    """Imports a command only when it is used, so that `up` stays small and starts its services at once."""

    def __init__(self, name: str | None, **attributes: Any) -> None:
        super().__init__(name, **attributes)
        names: Any = dict.fromkeys(COMMANDS)  # without commands: click suggests the names for a mistyped one
        self.commands = names

    def main(self, *args: Any, **options: Any) -> Any:
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            if getattr(sys, name) is None:  # the caller has closed it, as `<&-` and some supervisors do
                setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - until the process ends
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # its encoding may be of a locale without our letters
        return super().main(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the rest would fail again at the end
            raise click.ClickException(str(error)) from error
        return result

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        path = COMMANDS.get(cmd_name)
        return None if path is None else getattr(import_module(path), cmd_name)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        params = self.get_params(ctx)
        write_options("Options", (param for param in params if param.name not in CONNECTION), ctx, formatter)
        for title, paths in SECTIONS.items():
            self.write_commands(title, [path.rpartition(".")[2] for path in paths], ctx, formatter)
        connection = (param for param in params if param.name in CONNECTION)
        write_options("Connection options, before or after the command", connection, ctx, formatter)


@click.group(
    cls=_Commands,
    params=make_connection_options(is_main=True),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="headrace")
def main() -> None:
    """Headrace runs LLM agents and streams what they do."""
