"""Commands that a service's own command executes, because this package imports no service."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

JSON = click.Option(["--json"], is_flag=True, help="Print each item as JSON on its own line.")


def make_service_command(module: str, name: str, about: str, *params: click.Parameter) -> click.Command:
    """Make a command whose process becomes `python -m module name`, with the same options and arguments.

    The option --data-dir precedes the name.
    """

    def run(data_dir: str | None = None, **values: Any) -> None:
        given: dict[bool, list[str]] = {True: [], False: []}
        for param in command.params:
            value = values.get(param.name or "")
            items = value if isinstance(value, tuple) else [] if value in (None, False) else [value]
            is_option, flag = isinstance(param, click.Option), param.opts[0]
            for item in items:
                given[is_option].append(str(item) if not is_option else flag if item is True else f"{flag}={item}")
        before = [f"--data-dir={data_dir}"] if data_dir else []
        arguments = ["--", *given[False]] if given[False] else []
        os.execv(sys.executable, [sys.executable, "-m", module, *before, name, *given[True], *arguments])

    command = click.Command(name, params=[*params], help=about, callback=run)
    return command
