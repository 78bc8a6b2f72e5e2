"""Connects a channel to servers of its own process in memory, and to others as it was told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from services.runtime.calls.addresses import LOCAL, Address, Target, describe_address
from services.runtime.calls.ends import ClientEnd, Dialer
from services.runtime.http2.limits import DEFAULTS
from services.runtime.local.client_connection import LocalClientConnection
from services.runtime.local.network import LocalNetwork


@dataclass(frozen=True, slots=True)
class LocalDialer:
    network: LocalNetwork
    message_bytes_max: int
    elsewhere: Dialer
    """For addresses that no server of the process listens on."""

    @property
    def target(self) -> Target:
        return self.elsewhere.target

    async def open_connection(
        self, address: Address, on_free: Callable[[], None], on_gone: Callable[[ClientEnd, str], None]
    ) -> ClientEnd:
        where = describe_address(address)
        if self.network.can_reach(where):
            connection = LocalClientConnection(self.message_bytes_max, DEFAULTS, on_free, on_gone)
            self.network.connect(where, connection)
            return connection
        if where.startswith(LOCAL):
            raise OSError(f"cannot connect to {where}: no server of this process listens there")
        return await self.elsewhere.open_connection(address, on_free, on_gone)
