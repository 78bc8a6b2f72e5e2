"""Translates failures of sockets and parser into our errors."""

from __future__ import annotations

import ssl
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httptools

from headrace.errors import ProviderUnavailable, StreamStalled

if TYPE_CHECKING:
    from collections.abc import Generator

    from services.llm_gateway.providers.provider_file import Provider
    from services.llm_gateway.providers.route import Proxy


@contextmanager
def translating_connect_errors(provider: Provider, proxy: Proxy | None) -> Generator[None]:
    through = "" if proxy is None else f" through the proxy {proxy.authority}"
    try:
        yield
    except TimeoutError as error:
        limit_ms = provider.timeouts.connect_ms
        raise _make_unavailable(provider, f"did not accept a connection{through} within {limit_ms} ms") from error
    except OSError as error:
        raise _make_unavailable(provider, f"cannot be reached{through}: {_describe_cause(error)}") from error


@contextmanager
def translating_exchange_errors(provider: Provider) -> Generator[None]:
    """Translate errors of reading a response. A TimeoutError with errno is the system's; without, the first delta's."""
    try:
        yield
    except (OSError, httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
        if isinstance(error, TimeoutError) and error.errno is None:
            raise make_stalled(provider, has_begun=False) from error
        raise _make_unavailable(provider, "broke the connection off") from error


def make_stalled(provider: Provider, *, has_begun: bool) -> StreamStalled:
    timeouts = provider.timeouts
    limit_ms = timeouts.idle_ms if has_begun else timeouts.first_delta_ms
    what = "fell silent" if has_begun else "sent no first delta"
    return StreamStalled(
        f"provider {provider.key!r} {what} within {limit_ms} ms", provider=provider.key, limitMs=limit_ms
    )


def make_unusable(provider: Provider, error: ValueError) -> ProviderUnavailable:
    return _make_unavailable(provider, f"cannot be asked: {error}")


def _describe_cause(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate was refused, {getattr(error, 'verify_message', '')}"
    return error.strerror or str(error) or type(error).__name__


def _make_unavailable(provider: Provider, what: str) -> ProviderUnavailable:
    return ProviderUnavailable(f"provider {provider.key!r} {what}", provider=provider.key)
