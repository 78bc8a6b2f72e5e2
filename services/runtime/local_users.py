"""Finds the user at the other end of a loopback connection, from the kernel.

Without credentials, every caller that reaches a service may use it. On the loopback those are all users of the machine,
but only the one who runs the service is meant. https://man7.org/linux/man-pages/man7/sock_diag.7.html
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import struct
from typing import TypeAlias

Address: TypeAlias = tuple[str, int]
"""IP address and port."""

_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _REQUEST, _ERROR = 4, 20, 1, 2
_HEAD = struct.Struct("=IHHII")
_QUESTION = struct.Struct("=BBBxI")
_SOCKET_ID = struct.Struct(">HH16s16s")
_NO_COOKIE = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
_UID_OFFSET = 4 + 48 + 12
"""Offset of the user in the kernel's answer, after the socket's state, its id, and its timers and queues."""

_UID = struct.Struct("=I")
_ALL_STATES = 0xFFFFFFFF
_ANSWER_BYTES = 4096
_TIMEOUT_S = 1.0

_ROOT = 0


def is_foreign_user(transport: asyncio.BaseTransport) -> bool:
    """Return whether another user of this machine, except root, is at the other end of a loopback connection.

    False for other machines' connections, and if the kernel has no answer.
    """
    peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
    if not isinstance(peer, tuple) or not isinstance(own, tuple):
        return False
    return is_foreign_address((str(peer[0]), int(peer[1])), (str(own[0]), int(own[1])))


def is_foreign_address(peer: Address, own: Address) -> bool:
    """Like `is_foreign_user`, for the connection from `peer` to `own`."""
    return _parse_address(peer[0]).is_loopback and find_user(peer, own) not in (None, _ROOT, os.geteuid())


def find_user(local: Address, remote: Address) -> int | None:
    """Return the user id that owns the TCP socket of this machine with these two ends; None if none is found."""
    source, target = _parse_address(local[0]), _parse_address(remote[0])
    family = socket.AF_INET if source.version == 4 else socket.AF_INET6
    ends = _SOCKET_ID.pack(local[1], remote[1], source.packed.ljust(16, b"\0"), target.packed.ljust(16, b"\0"))
    body = _QUESTION.pack(family, socket.IPPROTO_TCP, 0, _ALL_STATES) + ends + _NO_COOKIE
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as kernel:
            kernel.settimeout(_TIMEOUT_S)
            kernel.send(_HEAD.pack(_HEAD.size + len(body), _SOCK_DIAG_BY_FAMILY, _REQUEST, 0, 0) + body)
            answer = kernel.recv(_ANSWER_BYTES)
    except OSError:
        return None
    kind = _HEAD.unpack_from(answer)[1]
    if kind != _SOCK_DIAG_BY_FAMILY:
        return None
    return _UID.unpack_from(answer, _HEAD.size + _UID_OFFSET)[0]


def _parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(text.partition("%")[0])
    return (address.ipv4_mapped or address) if isinstance(address, ipaddress.IPv6Address) else address
