"""The servers of one database; one accepts writes, and another after a fail-over.

All are contacted at once, because a dead one stays silent for longer than a call waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

if TYPE_CHECKING:
    from services.memory.storage.postgres.connection.session import Connection


DRIVER: ContextVar[Callable[..., Awaitable[Any]]] = ContextVar("DRIVER", default=asyncpg.connect)
"""Connects to one server; simulations replace it by a model of a server."""


async def open_connection(url: str, **options: Any) -> Connection:
    """Connect to the server that accepts writes; `options` are asyncpg.connect's.

    Raises the driver's error, preferably from a server that responded.
    """
    opened: list[Connection] = []
    errors: list[Exception] = []

    async def ask(each: str) -> None:
        try:
            opened.append(await DRIVER.get()(each, target_session_attrs="read-write", **options))
        except (
            *(OSError, ValueError),
            *(asyncpg.InterfaceError, asyncpg.InternalClientError, asyncpg.PostgresError),
        ) as error:
            errors.append(error)
        else:
            for other in asked:
                if other is not asyncio.current_task():
                    other.cancel()

    hosts = split_hosts(url)
    try:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(ask(each)) for each in hosts]
    except BaseException:
        for connection in opened:
            connection.terminate()
        raise
    if not opened:
        raise max(errors, key=lambda error: isinstance(error, asyncpg.PostgresError))
    for connection in opened[1:]:
        connection.terminate()
    return opened[0]


def split_hosts(url: str) -> list[str]:
    """Return `url` once for each of its hosts, given as host:port,host:port or as host= and port= in the query."""
    scheme, netloc, path, query_string, fragment = urlsplit(url)
    user, at, hosts = netloc.rpartition("@")
    if hosts:
        return [urlunsplit((scheme, user + at + host, path, query_string, fragment)) for host in hosts.split(",")]
    query = dict(parse_qsl(query_string))
    names, ports = (query.get(key, "").split(",") for key in ("host", "port"))
    if len(ports) != len(names):
        ports = ports * len(names)
    return [
        urlunsplit((scheme, netloc, path, urlencode(query | {"host": name, "port": port}), fragment))
        for name, port in zip(names, ports, strict=False)
    ]
