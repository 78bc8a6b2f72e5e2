"""Holds: data that nobody may delete."""

from __future__ import annotations

import uuid
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from headrace.errors import Erasing, Held, InvalidRequest, NotFound, QuotaExceeded
from services.memory.storage.paging import PAGE_MAX, read_pages
from services.memory.storage.records.erasures import GOING, StoredHold
from services.memory.storage.records.kind import make_version
from services.memory.storage.run_query import RunEntry, RunQuery
from services.runtime.auth import identity
from services.runtime.clock import now_ms
from services.runtime.randomness import new_uuid
from services.runtime.rpc.field_rules import is_uuid

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from headrace.v1 import data_pb2
    from services.memory.storage.engine import Engine
    from services.runtime.auth.identity import Identity

HOLDS_MAX = 10_000
"""Maximum holds of a tenant, including released ones."""

_IDS = uuid.UUID("4a0d5f70-9a0f-4f6f-8f55-8d7e3c1c1a27")


@dataclass(frozen=True, slots=True)
class HoldsInForce:
    """The holds of a moment."""

    holds: tuple[StoredHold, ...]

    def find(self, tenant: str, user: str = "", chat_id: str = "") -> StoredHold | None:
        """Return a hold of the tenant, the user, or the chat; None without one."""
        for hold in self.holds:
            covers = hold.chat_id == chat_id if hold.chat_id else hold.user in ("", user)
            if covers and hold.tenant == tenant:
                return hold
        return None

    def check(self, tenant: str, user: str = "", chat_id: str = "") -> None:
        """Raise Held if the tenant, the user or the chat is held."""
        if hold := self.find(tenant, user, chat_id):
            what = f"chat {hold.chat_id}" if hold.chat_id else f"user {hold.user}" if hold.user else "the tenant"
            message = f"{what} is held: nothing of it may be deleted until hold {hold.hold_id} is released"
            raise Held(message, holdId=hold.hold_id)


class HoldStore:
    def __init__(self, engine: Engine, clock: Callable[[], int] = now_ms) -> None:
        self._engine = engine
        self._clock = clock

    async def read_in_force(self) -> HoldsInForce:
        """Return the current holds of all tenants."""
        return HoldsInForce(tuple(hold for hold in await self._engine.records.holds.list_all() if not hold.released_at))

    async def list_own(self, *, include_ended: bool) -> list[StoredHold]:
        tenant = identity.require_identity().tenant
        own = (hold for hold in await self._engine.records.holds.list_all() if hold.tenant == tenant)
        found = (hold for hold in own if include_ended or not hold.released_at)
        return sorted(found, key=lambda hold: (hold.placed_at, hold.hold_id), reverse=True)

    async def place(self, request: data_pb2.PlaceHoldRequest) -> StoredHold:
        who = identity.require_identity()
        if sum(map(bool, (request.user, request.chat, request.tenant))) != 1:
            raise InvalidRequest.of("user", "or chat or tenant is required, and no two of them")
        if request.tenant not in ("", who.tenant):
            raise InvalidRequest.of("tenant", "must be the caller's own")
        if request.chat and not is_uuid(request.chat):
            raise InvalidRequest.of("chat", "must be a UUID in lower case")
        if request.chat and (await self._engine.index.find_row(request.chat)).tenant != who.tenant:
            raise NotFound(f"chat {request.chat} does not exist", chatId=request.chat)
        hold_id = str(uuid.uuid5(_IDS, f"{who.tenant}/{request.request_id}")) if request.request_id else new_uuid()
        if known := await self._engine.records.holds.find(hold_id):
            return await self._engine.records.holds.keep(known)
        if len(await self.list_own(include_ended=True)) >= HOLDS_MAX:
            raise QuotaExceeded(f"a tenant may have {HOLDS_MAX} holds")
        hold = StoredHold(
            hold_id=hold_id,
            tenant=who.tenant,
            version=make_version(),
            reason=request.reason,
            placed_by=who.user,
            placed_at=self._clock(),
            user=request.user,
            chat_id=request.chat,
            request_id=request.request_id,
        )
        await self._refuse_erased(hold)
        await self._engine.audit.record("hold.placed", who, holdId=hold_id, of=hold.user, chatId=hold.chat_id)
        if await self._engine.records.holds.put(hold):
            return hold
        # A statement with a lost response is repeated, and then finds its own hold.
        return await self._engine.records.holds.keep(await self._engine.records.holds.find(hold_id) or hold)

    async def release(self, hold_id: str) -> StoredHold:
        who = identity.require_identity()
        hold = await self._engine.records.holds.find(hold_id)
        if hold is None or hold.tenant != who.tenant:
            raise NotFound(f"hold {hold_id} does not exist", holdId=hold_id)
        if not hold.released_at:
            # Before it is so: a hold that has ended unseen would be worse than a line too many.
            await self._engine.audit.record("hold.released", who, holdId=hold_id, of=hold.user, chatId=hold.chat_id)

        def end(stored: StoredHold) -> StoredHold:
            if stored.released_at:
                return stored
            return replace(stored, released_by=who.user, released_at=self._clock())

        holds = self._engine.records.holds
        return holds.check_kept(await holds.change(hold, end))

    async def _refuse_erased(self, hold: StoredHold) -> None:
        owner = (await self._engine.index.find_row(hold.chat_id)).owner.user if hold.chat_id else hold.user
        for erasure in await self._engine.records.erasures.list_all():
            is_theirs = erasure.user in ("", owner) or not owner
            if erasure.state == GOING and erasure.tenant == hold.tenant and is_theirs:
                raise Erasing("it is being erased at this moment", erasureId=erasure.erasure_id)


def read_runs(engine: Engine, query: RunQuery) -> AsyncGenerator[RunEntry]:
    """Yield the runs of all pages, newest first."""
    return read_pages(engine.index.list_runs, query)


async def find_participants_hold(engine: Engine, holds: HoldsInForce, tenant: str, chat_id: str) -> StoredHold | None:
    """Return a hold of a user who has runs in the chat, which would be deleted with it; None without one."""
    by_user = {hold.user: hold for hold in holds.holds if hold.tenant == tenant and hold.user}
    if not by_user:
        return None
    async with aclosing(read_runs(engine, RunQuery(tenant, PAGE_MAX, chat_ids=[chat_id]))) as runs:
        async for run in runs:
            if run.user in by_user:
                return by_user[run.user]
    return None


async def check_chat(engine: Engine, holds: HoldsInForce, owner: Identity, chat_id: str) -> None:
    """Raise Held if the chat, its owner, or a user with runs in it is held."""
    holds.check(owner.tenant, owner.user, chat_id)
    if hold := await find_participants_hold(engine, holds, owner.tenant, chat_id):
        # The owner must not learn who is held.
        message = f"chat {chat_id} has runs of somebody who is held: it may not be deleted until that hold is released"
        raise Held(message, holdId=hold.hold_id)


async def check_deletion(engine: Engine, owner: Identity, chat_id: str = "") -> None:
    """Raise Held if the owner's data, or the chat, is held."""
    holds = await HoldStore(engine).read_in_force()
    if chat_id:
        await check_chat(engine, holds, owner, chat_id)
    else:
        holds.check(owner.tenant, owner.user)
