"""Memory's knowledge of chats: their owners, participants and holds.

Files belong to the chat's owner. Memory is asked if the record next to the files (owners.py) does not name the caller,
and overrides it: someone who guessed the chat's id may have made the record. Before a chat exists, its key proves whose
it is.
Without authentication all callers are one user, and memory is not asked.
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
from services.runtime.auth.access import PARTICIPATING, RUN_ONLY, find_keyed_chat
from services.runtime.auth.identity import DEFAULT, Identity, acting_as, require_identity
from services.runtime.rpc.call_ids import forward_metadata
from services.runtime.rpc.peer_calls import repeat_until_answered, translating_peer_errors
from services.tools.workspace.owners import CHAT_OWNER, Owners
from services.tools.workspace.workspace import Workspaces

TIMEOUT_S, HOLDS_TIMEOUT_S = 10.0, 60.0
"""Long, because memory may be restarting, or starting along with this service."""


class ChatRights:
    def __init__(self, memory: grpc.aio.Channel, workspaces: Workspaces) -> None:
        self._get_chat = repeat_until_answered(MemoryServiceStub(memory).GetChat)
        self._check_erasure = repeat_until_answered(DataStoreServiceStub(memory).CheckErasure)
        self._workspaces = workspaces

    async def check_new_work(self) -> None:
        """Raise Erasing while the caller's data is being erased."""
        if require_identity() != DEFAULT:
            with translating_peer_errors():
                request = data_pb2.CheckErasureRequest()
                await self._check_erasure(request, timeout=TIMEOUT_S, metadata=forward_metadata())

    async def enter_chat(
        self, chat_id: str, run_id: str | None = None, *, chat_key: str = "", shows_content: bool = False
    ) -> bool:
        """Let the rest of this call use the chat's files if the caller participates in the chat, or `run_id` is an
        active run of the caller in it, or `chat_key` is the caller's key of it; return whether that is known.

        Other callers are refused when they open files that are not theirs. With `shows_content` memory records that the
        caller reads another user's chat.

        Raises:
            NotFound: The caller may only read the chat.
        """
        caller = require_identity()
        if caller == DEFAULT:
            return True
        if chat_key and find_keyed_chat(caller, chat_key) == chat_id:
            await asyncio.to_thread(self._workspaces.clear_for_owner, chat_id, caller)
            return True
        is_own = await asyncio.to_thread(self._workspaces.read_owner, chat_id) == caller
        if is_own and not (shows_content and caller.makers):
            return True
        request = memory_pb2.GetChatRequest(
            chat_id=chat_id, run_id=run_id, without_events=True, shows_content=shows_content
        )
        try:
            with translating_peer_errors():
                chat = await self._get_chat(request, timeout=TIMEOUT_S, metadata=forward_metadata())
        except NotFound:
            return False
        if chat.access not in PARTICIPATING and chat.access != RUN_ONLY:
            raise NotFound(f"chat {chat_id} does not exist", chatId=chat_id)
        owner = Identity(caller.tenant, chat.owner)
        await asyncio.to_thread(self._workspaces.clear_for_owner, chat_id, owner)
        CHAT_OWNER.set((chat_id, owner))
        return True


class HeldChats:
    def __init__(self, memory: grpc.aio.Channel, owners: Owners) -> None:
        # Any: the stub's types know the RPCs of synchronous channels too, and so each as a union.
        self._stub: Any = DataStoreServiceStub(memory)
        self._owners = owners

    async def read(self) -> Callable[[str], bool]:
        """Return a function that tells whether a chat is now held; the function blocks. Raises HeadraceError."""
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
