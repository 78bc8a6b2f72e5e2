"""Binds the sockets of servers, at addresses of either family."""

from __future__ import annotations

import socket
from errno import EADDRNOTAVAIL, EAFNOSUPPORT

ANY, ANY_IPV4 = "::", "0.0.0.0"


def bind_port(address: str, *, reuse_port: bool = False) -> tuple[list[socket.socket], int]:
    """Return sockets bound to host:port, and their port; raises OSError.

    `[::]` is every address of both families, or of IPv4 alone where the machine has no IPv6. With `reuse_port`, other
    processes of this user may listen there, too; the kernel spreads connections over them.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        return _bind_host(host, int(port), reuse_port=reuse_port)
    except OSError as error:
        if host != ANY or error.errno not in (EAFNOSUPPORT, EADDRNOTAVAIL):
            raise
        return _bind_host(ANY_IPV4, int(port), reuse_port=reuse_port)


def _bind_host(host: str, port: int, *, reuse_port: bool) -> tuple[list[socket.socket], int]:
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, name in found:
            item = socket.socket(family, kind, protocol)
            sockets.append(item)
            item.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            item.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(reuse_port))
            if family == socket.AF_INET6:
                item.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host != ANY))
            item.bind((name[0], port, *name[2:]))
            port = item.getsockname()[1]
            item.setblocking(False)
    except OSError as error:
        for item in sockets:
            item.close()
        raise OSError(error.errno, error.strerror, f"{host}:{port}") from error
    return sockets, port
