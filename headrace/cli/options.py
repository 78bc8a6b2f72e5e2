"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
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


_TOKEN = "headrace.token"


def _keep(context: click.Context, _option: click.Parameter, token: str | None) -> None:
    context.meta[_TOKEN] = token or ""


def token() -> str:
    """The credential of the command that is running; empty: none."""
    context = click.get_current_context(silent=True)
    return context.meta.get(_TOKEN, "") if context is not None else ""


token_option = click.option(
    "--token",
    envvar="HEADRACE_TOKEN",
    callback=_keep,
    expose_value=False,
    show_envvar=True,
    help="An API key or a JWT, where the facade wants one; better in the environment, which `ps` does not show.",
)

_url_option = click.option(
    "--url",
    envvar="HEADRACE_URL",
    callback=_absolute,
    default="http://127.0.0.1:8080",
    show_default=True,
    show_envvar=True,
    help="Where the facade answers.",
)


def url_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Where the facade is, and the credential to show it."""
    return _url_option(token_option(command))
