"""Asks memory which chats' files must not be removed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

from headrace.v1 import data_pb2
from headrace.v1.data_pb2_grpc import DataStoreServiceStub
from services.runtime.auth.identity import acting_as
from services.runtime.rpc.peer_calls import translating_peer_errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from services.tools.workspace.owners import Owners

TIMEOUT_S = 60.0
"""Memory may be restarting, or starting, as this service is."""


class HeldChats:
    def __init__(self, memory: grpc.aio.Channel, owners: Owners) -> None:
        # Any: the stub's types know the RPCs of synchronous channels too, and so each as a union.
        self._stub: Any = DataStoreServiceStub(memory)
        self._owners = owners

    async def read(self) -> Callable[[str], bool]:
        """Return what tells whether a chat is held, as it is now; that blocks. Raises HeadraceError."""
        with acting_as(None), translating_peer_errors():
            request = data_pb2.ListHoldsInForceRequest()
            found = await self._stub.ListHoldsInForce(request, timeout=TIMEOUT_S, wait_for_ready=True)
        chats = {hold.chat_id for hold in found.holds if hold.chat_id}
        users = {(hold.tenant, hold.user) for hold in found.holds if not hold.chat_id}

        def is_held(chat_id: str) -> bool:
            if chat_id in chats:
                return True
            owner = self._owners.read_owner(chat_id, is_older=True) if users else None
            return owner is not None and not users.isdisjoint({(owner.tenant, owner.user), (owner.tenant, "")})

        return is_held
