"""What a channel's target names: one address, or with dns:/// all replicas behind a name."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from typing import TypeAlias

Address: TypeAlias = str | tuple[str, int]
"""A Unix socket's path, or host and port."""

DNS = "dns:///"


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed target."""

    text: str
    path: str
    """Of a Unix socket; empty: host and port count."""

    host: str
    port: int
    is_spread: bool
    """Calls go to all addresses of the name in turn; else to the first that answers."""

    @property
    def authority(self) -> str:
        """What requests say the server is called."""
        return "localhost" if self.path else self.text.removeprefix(DNS)


def parse(target: str) -> Target:
    """The target in gRPC's forms: host:port, unix:/path, dns:///host:port.

    Raises:
        ValueError: It is none of them.
    """
    if target.startswith("unix:"):
        return Target(target, target.removeprefix("unix:").removeprefix("//"), "", 0, is_spread=False)
    name = target.removeprefix(DNS)
    host, separator, port = name.rpartition(":")
    if not separator or not port.isdecimal() or not host:
        raise ValueError(f"target {target!r}: expected host:port, unix:/path or dns:///host:port")
    return Target(target, "", host.strip("[]"), int(port), is_spread=target.startswith(DNS))


async def resolve(target: Target) -> list[Address]:
    """The addresses to connect to; for a target that is not spread there is one, tried in the system's own order.

    Raises:
        OSError: The name cannot be resolved.
    """
    if target.path:
        return [target.path]
    if not target.is_spread:
        return [(target.host, target.port)]
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    # In both families a pod would get twice its share.
    family = found[0][0]
    return sorted({(str(entry[4][0]), int(entry[4][1])) for entry in found if entry[0] == family})
