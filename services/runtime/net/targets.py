"""Brings a URL that a model or a user wrote into one unambiguous form, and finds addresses that may be reached.

Ambiguous forms are refused: numeric hosts not in the form 127.0.0.1, names with invalid characters, user names before
the host.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from yarl import URL

from services.runtime.net.allow_list import Address, AllowList, find_refusal, parse_address

URL_CHARS_MAX = 4096

PORTS = frozenset({80, 443, 8080, 8443})
"""Ports that may be fetched from; services at others may read an HTTP request as their own protocol."""

NAME = re.compile(r"(?=.{1,253}$)([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")

NUMBER = re.compile(r"(.*\.)?(\d+|0x[0-9a-f]*)")
"""A last label that makes a host an IPv4 address in some form (the URL standard, Host parsing)."""

_ENCODED = re.compile(r"(?:[\w.~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*", re.ASCII)
"""Characters of a URL that need no encoding (RFC 3986, 2)."""
_DOTS = re.compile(r"/\.\.?(?:/|\Z)")

CONTROL = re.compile(r"[\x00-\x20\x7f]")


class TargetRefused(Exception):
    """A URL or an address must not be reached; the text tells its author why."""


@dataclass(frozen=True, slots=True)
class Target:
    url: URL
    host: str
    """Name, or address without brackets."""
    port: int
    address: Address | None


def parse_target(text: str, allow: AllowList, ports: frozenset[int] = PORTS) -> Target:
    url = _parse_url(text)
    if url.scheme not in ("http", "https"):
        raise TargetRefused(f"only http and https can be fetched, not {url.scheme or 'a URL without a scheme'!r}")
    if url.raw_user is not None or url.raw_password is not None or "@" in url.raw_authority:
        raise TargetRefused("a URL with a user name before its host is not fetched; leave it out")
    host, port = (url.raw_host or "").lower(), url.port or 0
    address = parse_address(host)
    if address is None:
        name = host.removesuffix(".")
        if NUMBER.fullmatch(name):
            raise TargetRefused(f"{host!r}: an IPv4 address must have four decimal parts, as 192.0.2.1 has")
        if not NAME.fullmatch(name):
            raise TargetRefused(f"{host!r} is no host name")
    if port not in ports and not allow.has_host(host, port) and not (address and allow.has_address(address, port)):
        raise TargetRefused(f"port {port} is not allowed; only {', '.join(map(str, sorted(ports)))} are")
    return Target(keep_encoding(text), host, port, address)


def _parse_url(text: str) -> URL:
    if len(text) > URL_CHARS_MAX:
        raise TargetRefused(f"the URL is longer than {URL_CHARS_MAX} characters")
    # Some readers drop or convert line breaks, tabs and backslashes, others keep them.
    if CONTROL.search(text) or "\\" in text.partition("?")[0]:
        raise TargetRefused("the URL has white space, control characters or backslashes; write them percent-encoded")
    try:
        return URL(text)
    except ValueError as error:
        raise TargetRefused(f"not a URL: {error}") from error


def keep_encoding(text: str) -> URL:
    """Return a URL that is requested as it is written, if it is written as URLs are; otherwise encoded.

    Its signature may cover the very escapes that another writer would leave out (`sig=a%2Fb`). Raises ValueError.
    """
    path = text.partition("://")[2].partition("?")[0]
    return URL(text, encoded=_ENCODED.fullmatch(text) is not None and _DOTS.search(path) is None)


HTTPS_PORTS = frozenset({443, 8443})
PLAIN_PORT = 80


def parse_https_target(
    url: str, allow: AllowList, ports: frozenset[int] = HTTPS_PORTS, *, verb: str = "reached"
) -> Target:
    """Return the target; names are not resolved. `verb` names the refused action in error texts.

    Raises:
        TargetRefused: It must not be reached, or not without TLS: only hosts in `allow` may be reached without.
    """
    # The usual port of plain HTTP is let through, so that the refusal names the actual problem.
    target = parse_target(url, allow, ports | {PLAIN_PORT})
    address = target.address
    is_opened = allow.has_host(target.host, target.port) or (
        address is not None and allow.has_address(address, target.port)
    )
    if target.url.scheme != "https" and not is_opened:
        raise TargetRefused(f"only https is {verb}, but for hosts that the operator has opened")
    if target.port == PLAIN_PORT and not is_opened:
        raise TargetRefused(f"port {PLAIN_PORT} is not {verb}")
    if address is not None and not is_opened and (why := find_refusal(address)):
        raise TargetRefused(f"{target.host!r} must not be reached from here: its address is {why}")
    return target


Resolve: TypeAlias = Callable[[str], Awaitable[list[str]]]
"""Resolves a name to its addresses, in the order to try them; raises OSError."""

ADDRESSES_MAX = 16


async def resolve_name(name: str) -> list[str]:
    infos = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return [str(sockaddr[0]) for *_, sockaddr in infos]


async def checked_addresses(target: Target, resolve: Resolve, allow: AllowList) -> tuple[Address, ...]:
    """Return the target's addresses; one bad address refuses all, because it may be first in the next answer.

    Raises:
        TargetRefused: The name has no address, or one that must not be reached.
    """
    if target.address is not None:
        addresses = [target.address]
    else:
        try:
            texts = await resolve(target.host)
        except (OSError, UnicodeError) as error:
            raise TargetRefused(f"{target.host!r} has no address") from error
        # With a scope (%eth0), ipaddress keeps it, and the address is then refused.
        addresses = [address for text in texts[:ADDRESSES_MAX] if (address := parse_address(text))]
    if not addresses:
        raise TargetRefused(f"{target.host!r} has no address")
    if not allow.has_host(target.host, target.port):
        for address in addresses:
            why = find_refusal(address)
            if why and not allow.has_address(address, target.port):
                raise TargetRefused(f"{target.host!r} must not be reached from here: its address is {why}")
    return tuple(dict.fromkeys(addresses))
