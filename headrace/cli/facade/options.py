"""Options shared by commands: facade URL, credential, TLS."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

if TYPE_CHECKING:
    from headrace.tls import Tls


def _check_url(_context: click.Context, _option: click.Parameter, text: str) -> str:
    try:
        url = urlsplit(text)
        is_address = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
        # Requests go to the host's root; a path in the URL would be ignored.
        is_address = is_address and url.path in ("", "/") and not (url.query or url.fragment)
        (url.hostname or "").encode("idna")
    except ValueError:
        is_address = False
    if not is_address:
        raise click.BadParameter(f"{text!r} is no address such as http://127.0.0.1:8080")
    return text


def _store_value(context: click.Context, option: click.Parameter, value: str | None) -> None:
    context.meta[f"headrace.{option.name}"] = value or ""


def _store_token(context: click.Context, option: click.Parameter, value: str | None) -> None:
    token = (value or "").strip()  # values from files often end with a newline
    if not (token.isascii() and token.isprintable()):
        raise click.BadParameter("it has a character that no credential has")
    _store_value(context, option, token)


def _get_value(name: str) -> str:
    context = click.get_current_context(silent=True)
    return context.meta.get(f"headrace.{name}", "") if context is not None else ""


def get_token() -> str:
    """Return the running command's credential; empty if it has none."""
    return _get_value("token")


token_option = click.option(
    "--token",
    envvar="HEADRACE_TOKEN",
    callback=_store_token,
    expose_value=False,
    show_envvar=True,
    help="API key or JWT, if the facade needs one. Prefer the environment, which `ps` does not show.",
)

_url_option = click.option(
    "--url",
    envvar="HEADRACE_URL",
    callback=_check_url,
    default="http://127.0.0.1:8080",
    show_default=True,
    show_envvar=True,
    help="URL of the facade.",
)


def get_tls() -> Tls:
    """Return the running command's certificates for a facade with TLS.

    Raises:
        click.UsageError: The options contradict each other.
    """
    from headrace.tls import Tls  # brings gRPC, which `up` does without

    try:
        return Tls(*map(_get_value, ("tls_ca", "tls_cert", "tls_key")))
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _build_tls_option(name: str, text: str) -> Callable[..., Any]:
    return click.option(
        f"--tls-{name}",
        envvar=f"HEADRACE_TLS_{name.upper()}",
        callback=_store_value,
        expose_value=False,
        show_envvar=True,
        help=text,
    )


_tls_options = (
    _build_tls_option("ca", "PEM file with the CA that signed the facade's certificate."),
    _build_tls_option("cert", "PEM file with a client certificate, if the facade asks for one."),
    _build_tls_option("key", "PEM file with the key of the client certificate."),
)


def url_option(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed((_url_option, token_option, *_tls_options)):
        command = option(command)
    return command
