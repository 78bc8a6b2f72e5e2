"""Options that several commands have."""

from __future__ import annotations

import click

url_option = click.option(
    "--url",
    envvar="HEADRACE_URL",
    default="http://127.0.0.1:8080",
    show_default=True,
    show_envvar=True,
    help="Where the facade answers.",
)
