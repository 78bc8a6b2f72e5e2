"""Options that several commands have."""

from __future__ import annotations

from urllib.parse import urlsplit

import click


def _absolute(_context: click.Context, _option: click.Parameter, text: str) -> str:
    """`text` if it is an address that can be asked."""
    try:
        url = urlsplit(text)
        is_one = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        is_one = False
    if not is_one:
        raise click.BadParameter(f"{text!r} is no address such as http://127.0.0.1:8080")
    return text


url_option = click.option(
    "--url",
    envvar="HEADRACE_URL",
    callback=_absolute,
    default="http://127.0.0.1:8080",
    show_default=True,
    show_envvar=True,
    help="Where the facade answers.",
)
