"""What memory says of chats: whose they are, who takes part in them, and which must not be removed.

Files are the chat's owner's. Memory is asked where the record beside the files (owners.py) does not say that they are
the caller's. Without authentication everybody is one user, and it is not asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc

from headrace.errors import NotFound
from headrace.v1 import data_pb2, memory_pb2
from headrace.v1.data_pb2_grpc import DataStoreServiceStub
from headrace.v1.memory_pb2_grpc import MemoryServiceStub
from services.runtime.auth.access import PARTICIPATING, RUN_ONLY
from services.runtime.auth.identity import DEFAULT, Identity, acting_as, require_identity
from services.runtime.rpc.call_ids import forward_metadata
from services.runtime.rpc.peer_calls import repeat_until_answered, translating_peer_errors
from services.tools.workspace.owners import CHAT_OWNER, Owners
from services.tools.workspace.workspace import Workspaces

TIMEOUT_S, HOLDS_TIMEOUT_S = 10.0, 60.0
"""Memory may be restarting, or starting, as this service is."""


class ChatRights:
    def __init__(self, memory: grpc.aio.Channel, workspaces: Workspaces) -> None:
        self._get_chat = repeat_until_answered(MemoryServiceStub(memory).GetChat)
        self._check_erasure = repeat_until_answered(DataStoreServiceStub(memory).CheckErasure)
        self._workspaces = workspaces

    async def check_new_work(self) -> None:
        """Raise Erasing while what is kept of the caller is being erased."""
        if require_identity() != DEFAULT:
            with translating_peer_errors():
                request = data_pb2.CheckErasureRequest()
                await self._check_erasure(request, timeout=TIMEOUT_S, metadata=forward_metadata())

    async def enter_chat(self, chat_id: str, run_id: str | None = None, *, shows_content: bool = False) -> None:
        """Let the rest of this call work with the chat's files if the caller takes part in the chat, or `run_id` is a
        run of the caller's that goes on in it; who may not is refused by whoever opens them. `shows_content`: memory
        records that the caller reads a chat of another."""
        caller = require_identity()
        if caller == DEFAULT:
            return
        is_own = await asyncio.to_thread(self._workspaces.read_owner, chat_id) == caller
        if is_own and not (shows_content and caller.makers):
            return
        request = memory_pb2.GetChatRequest(
            chat_id=chat_id, run_id=run_id, without_events=True, shows_content=shows_content
        )
        try:
            with translating_peer_errors():
                chat = await self._get_chat(request, timeout=TIMEOUT_S, metadata=forward_metadata())
        except NotFound:
            return
        if chat.access in PARTICIPATING or chat.access == RUN_ONLY:
            CHAT_OWNER.set((chat_id, Identity(caller.tenant, chat.owner)))


class HeldChats:
    def __init__(self, memory: grpc.aio.Channel, owners: Owners) -> None:
        # Any: the stub's types know the RPCs of synchronous channels too, and so each as a union.
        self._stub: Any = DataStoreServiceStub(memory)
        self._owners = owners

    async def read(self) -> Callable[[str], bool]:
        """Return what tells whether a chat is held, as it is now; that blocks. Raises HeadraceError."""
        with acting_as(None), translating_peer_errors():
            request = data_pb2.ListHoldsInForceRequest()
            found = await self._stub.ListHoldsInForce(request, timeout=HOLDS_TIMEOUT_S, wait_for_ready=True)
        chats = {hold.chat_id for hold in found.holds if hold.chat_id}
        users = {(hold.tenant, hold.user) for hold in found.holds if not hold.chat_id}

        def is_held(chat_id: str) -> bool:
            if chat_id in chats:
                return True
            owner = self._owners.read_owner(chat_id, is_older=True) if users else None
            return owner is not None and not users.isdisjoint({(owner.tenant, owner.user), (owner.tenant, "")})

        return is_held
