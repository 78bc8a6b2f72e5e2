"""Brings a URL that a model or a user wrote into the one form that everything after this file sees.

Whatever two programs could read in two ways is refused: numbers in other forms than 127.0.0.1 has, names with
characters that no name has, user names before the host.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from yarl import URL

from services.runtime.net.addresses import Address, parse_address
from services.runtime.net.allow_list import AllowList

URL_CHARS_MAX = 4096

PORTS = frozenset({80, 443, 8080, 8443})
"""Ports that are fetched from; services behind others may take an HTTP request for their own protocol."""

NAME = re.compile(r"(?=.{1,253}$)([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")

NUMBER = re.compile(r"(.*\.)?(\d+|0x[0-9a-f]*)")
"""A last label that makes a host an IPv4 address in some form (the URL standard, Host parsing)."""

CONTROL = re.compile(r"[\x00-\x20\x7f]")


class TargetRefused(Exception):
    """A URL or an address is not to be reached; the text says why, to who wrote it."""


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
        raise TargetRefused(f"port {port} is not fetched from; only {', '.join(map(str, sorted(ports)))} are")
    return Target(url, host, port, address)


def _parse_url(text: str) -> URL:
    if len(text) > URL_CHARS_MAX:
        raise TargetRefused(f"the URL is longer than {URL_CHARS_MAX} characters")
    # Line breaks, tabs and backslashes are dropped or turned by some readers and kept by others.
    if CONTROL.search(text) or "\\" in text.partition("?")[0]:
        raise TargetRefused("the URL has white space, control characters or backslashes; write them percent-encoded")
    try:
        return URL(text)
    except ValueError as error:
        raise TargetRefused(f"not a URL: {error}") from error
