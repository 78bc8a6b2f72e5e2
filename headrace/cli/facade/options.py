"""The connection options: facade URL, credential, TLS. Every command that calls a facade takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

if TYPE_CHECKING:
    from headrace.tls import Tls


def _check_url(text: str) -> str:
    text = text.strip()
    try:
        url = urlsplit(text)
        is_address = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
        # Requests go to the host's root; a path in the URL would be ignored.
        is_address = is_address and url.path in ("", "/") and not (url.query or url.fragment)
        (url.hostname or "").encode("idna")
        if url.username is not None:  # the text is shown where no server answers
            raise click.BadParameter("an address has no user name and no password; a credential is for --token")
    except ValueError:
        is_address = False
    if not is_address:
        raise click.BadParameter(f"{text!r} is not an address such as http://127.0.0.1:8080")
    return text


def _check_token(text: str) -> str:
    token = text.strip()  # values from files often end with a newline
    if not (token.isascii() and token.isprintable()):
        raise click.BadParameter("it contains a character that cannot be part of a credential")
    return token


_CHECKS = {"facade_url": _check_url, "facade_token": _check_token}


def _store_value(context: click.Context, option: click.Parameter, value: str | None) -> None:
    if value is not None:
        name = option.name or ""
        context.meta[name] = _CHECKS[name](value) if name in _CHECKS else value


def _get_value(name: str) -> str:
    context = click.get_current_context(silent=True)
    return context.meta.get(f"facade_{name}", "") if context is not None else ""


def get_url() -> str:
    """Return the running command's facade URL."""
    return _get_value("url")


def set_url(url: str) -> None:
    """Make this the running command's facade URL."""
    click.get_current_context().meta["facade_url"] = url


def get_token() -> str:
    """Return the running command's credential; empty if it has none."""
    return _get_value("token")


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


_MEANINGS = {
    "url": "URL of the facade.",
    "token": "API key or JWT, if the facade needs one. Prefer the environment, which `ps` does not show.",
    "tls-ca": "PEM file with the CA that signed the facade's certificate.",
    "tls-cert": "PEM file with a client certificate, if the facade asks for one.",
    "tls-key": "PEM file with the key of the client certificate.",
}

CONNECTION = {f"facade_{name.replace('-', '_')}": name for name in _MEANINGS}
"""The connection options, by the names of their parameters; requests may have a field `url`."""


def make_connection_options(*names: str, is_main: bool = False) -> list[click.Parameter]:
    """Make the connection options of these names, or all.

    Only those of `headrace` itself have variables and a default, so an option after the command's name overrides them.
    """
    return [
        click.Option(
            [f"--{name}", param],
            envvar=f"HEADRACE_{name.upper().replace('-', '_')}" if is_main else None,
            show_envvar=True,
            default="http://127.0.0.1:8080" if is_main and name == "url" else None,
            show_default=True,
            callback=_store_value,
            expose_value=False,
            help=_MEANINGS[name],
        )
        for param, name in CONNECTION.items()
        if not names or name in names
    ]
