"""Sockets that servers listen on."""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress


def bind_address(address: str, *, reuse_port: bool = False) -> tuple[list[socket.socket], int]:
    """Return sockets bound to `address`, and their port (1 for a path, as in grpcio); raises OSError.

    With `reuse_port` other processes of this user may listen there, too; the kernel spreads connections over them.
    """
    if address.startswith("unix:"):
        return [_bind_path(address.removeprefix("unix:"))], 1
    host, _, port_text = address.rpartition(":")
    host = host.strip("[]")
    found = socket.getaddrinfo(host or None, int(port_text), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    port = int(port_text)
    try:
        for family, kind, protocol, _, name in found:
            item = socket.socket(family, kind, protocol)
            sockets.append(item)
            item.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            item.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(reuse_port))
            if family == socket.AF_INET6:
                item.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host != "::"))
            item.bind((name[0], port, *name[2:]))
            port = item.getsockname()[1]
            item.setblocking(False)
    except OSError:
        for item in sockets:
            item.close()
        raise
    return sockets, port


def _bind_path(path: str) -> socket.socket:
    # A socket that nobody listens on any more is in the way; serving_grpc() has made sure of that.
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.stat(path).st_mode):
            os.unlink(path)
    item = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        item.bind(path)
    except OSError:
        item.close()
        raise
    item.setblocking(False)
    return item
