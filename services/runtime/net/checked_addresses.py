"""The addresses of a name, each of which may be reached."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from services.runtime.net.addresses import Address, find_refusal, parse_address
from services.runtime.net.allow_list import AllowList
from services.runtime.net.targets import Target, TargetRefused

Resolve: TypeAlias = Callable[[str], Awaitable[list[str]]]
"""Resolves a name to its addresses, in the order to try them; raises OSError."""

ADDRESSES_MAX = 16


async def resolve_name(name: str) -> list[str]:
    infos = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return [str(sockaddr[0]) for *_, sockaddr in infos]


async def checked_addresses(target: Target, resolve: Resolve, allow: AllowList) -> tuple[Address, ...]:
    """Returns the target's addresses; one bad address refuses all, because it may be first in the next answer.

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
        # A scope (%eth0) makes ipaddress keep it, and then the address is refused.
        addresses = [address for text in texts[:ADDRESSES_MAX] if (address := parse_address(text))]
    if not addresses:
        raise TargetRefused(f"{target.host!r} has no address")
    if not allow.has_host(target.host, target.port):
        for address in addresses:
            why = find_refusal(address)
            if why and not allow.has_address(address, target.port):
                raise TargetRefused(f"{target.host!r} must not be reached from here: its address is {why}")
    return tuple(dict.fromkeys(addresses))
