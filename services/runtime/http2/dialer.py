"""Opens HTTP/2 connections to single addresses."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from services.runtime.calls.addresses import Address, Target, describe_address
from services.runtime.http2.client_connection import ClientConnection
from services.runtime.http2.limits import Limits
from services.runtime.http2.tls import restrict_to_http2


@dataclass(frozen=True, slots=True)
class SocketDialer:
    target: Target
    message_bytes_max: int
    limits: Limits
    tls_context: Callable[[], ssl.SSLContext] | None
    """Called for each connection, because certificates are renewed; None means plain text."""

    server_name: str | None
    """Name in the server's certificate; None for the host."""

    async def open_connection(
        self, address: Address, on_free: Callable[[], None], on_gone: Callable[[ClientConnection, str], None]
    ) -> ClientConnection:
        """Return a connection after its peer has sent its settings; raises OSError with address and reason."""
        settled: asyncio.Future[ClientConnection] = asyncio.get_running_loop().create_future()
        # If the channel is closed in the meantime, the future is never awaited; asyncio would log the loss as an error.
        settled.add_done_callback(lambda done: done.cancelled() or done.exception())

        def report_ready(connection: ClientConnection) -> None:
            if not settled.done():
                settled.set_result(connection)

        def report_loss(connection: ClientConnection, why: str) -> None:
            on_gone(connection, why)
            if not settled.done():
                settled.set_exception(OSError(why))

        connection = ClientConnection(
            self.message_bytes_max,
            self.limits,
            report_ready,
            on_free,
            report_loss,
            scheme=b"http" if self.tls_context is None else b"https",
            authority=(self.server_name or self.target.authority).encode(),
        )
        try:
            async with asyncio.timeout(self.limits.connect_s):
                await self._open_transport(connection, address)
                return await settled
        except asyncio.CancelledError:
            _abort_connection(connection)
            raise
        except OSError as error:  # TimeoutError and ssl.SSLError are among them
            _abort_connection(connection)
            timed_out = f"no answer within {self.limits.connect_s:.0f} s"
            reason = timed_out if isinstance(error, TimeoutError) else str(error)
            raise OSError(f"cannot connect to {describe_address(address)}: {reason}") from error

    async def _open_transport(self, connection: ClientConnection, address: Address) -> None:
        loop = asyncio.get_running_loop()
        tls: dict[str, Any] = {}
        if self.tls_context is not None:
            server_name = self.server_name or self.target.get_certificate_name(address)
            tls = {"ssl": restrict_to_http2(self.tls_context()), "server_hostname": server_name}
        if isinstance(address, str):
            await loop.create_unix_connection(lambda: connection, address, **tls)
        else:
            await loop.create_connection(lambda: connection, *address, **tls)


def _abort_connection(connection: ClientConnection) -> None:
    if hasattr(connection, "transport"):
        connection.transport.abort()
