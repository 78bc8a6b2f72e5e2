"""Erasures as records: requested, claimed by a worker, and finally receipts.

During an erasure, every service of the store refuses new work of its users.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog
from msgspec.structs import replace

from headrace.contract import RPCS
from headrace.errors import Erasing, HeadraceError, InvalidRequest, NotFound, Overloaded, StaleLease
from services.memory.data.holds import HoldStore
from services.memory.storage.records.erasures import DONE, GOING, StoredErasure
from services.memory.storage.records.kind import make_version
from services.memory.storage.work import WORK, Work, note_work
from services.runtime.auth import identity
from services.runtime.clock import monotonic_s, now_ms
from services.runtime.ending import guard_task
from services.runtime.randomness import new_uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from headrace.v1 import data_pb2
    from services.memory.storage.engine import Engine
    from services.runtime.auth.identity import Identity

LOOK_S = 1.0
"""Interval at which the records are polled."""

KNOWN_S = 15.0
"""How long the last known state is trusted while the store is unavailable; longer than calls wait for it."""

NEW_WORK = frozenset(path for path, rpc in RPCS.items() if rpc.creates)
"""RPCs that create data of a user. Append is checked once its lines are known, because runs must be able to end.
A schedule's posts are erased with it, and their runs do not begin."""

log = structlog.get_logger()


class Refusals:
    """The erasures in progress known to this process."""

    def __init__(self, engine: Engine) -> None:
        self._erasures = engine.records.erasures
        self._is_shared = engine.eraser.drain_s > 0
        self.going: tuple[StoredErasure, ...] = ()
        self._state: int | None = None
        """The store's number for these."""
        self._looked_s = monotonic_s()
        self._since_s: dict[str, float] = {}
        """When each of them became known here."""

    async def look(self) -> None:
        began_s, state = monotonic_s(), self._erasures.state
        going = tuple(found for found in await self._erasures.list_all() if found.state == GOING)
        if began_s < self._looked_s:
            return  # another task has polled in the meantime, and has newer data
        self.going, self._looked_s = going, began_s
        self._state = None if state is None else state.erasures
        now_s = monotonic_s()
        self._since_s = {found.erasure_id: self._since_s.get(found.erasure_id, now_s) for found in self.going}

    def get_age_s(self, erasure: StoredErasure) -> float:
        """Return how long this process has refused new work of the erasure's users, in seconds."""
        now_s = monotonic_s()
        return now_s - self._since_s.get(erasure.erasure_id, now_s)

    @asynccontextmanager
    async def following(self) -> AsyncGenerator[Refusals]:
        """Follow the erasures that others begin, inside the block, with the current state already loaded on entry."""
        await self.look()
        task = guard_task(asyncio.create_task(self._follow()))
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.wait([task])

    def check_call(self, method: str, who: Identity | None) -> None:
        """Note the kind of an RPC's work, and refuse one that would create data of a user being erased. Raises
        Erasing."""
        note_work(method)
        if who is not None and method in NEW_WORK:
            self.check(who)

    def check(self, who: Identity) -> None:
        """Raise Erasing if the user is being erased, and Overloaded if that is unknown."""
        if self._is_shared and monotonic_s() - self._looked_s > KNOWN_S:
            message = "the database is away, and with it who is being erased; try again later"
            raise Overloaded(message, retry_after_s=LOOK_S)
        for erasure in self.going:
            if erasure.covers(who.tenant, who.user):
                owner = "user" if erasure.user else "tenant"
                message = f"what is kept of this {owner} is being erased; try again later"
                raise Erasing(message, erasureId=erasure.erasure_id, retry_after_s=LOOK_S)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            state = self._erasures.state
            if state is not None and state.erasures == self._state:
                self._looked_s = max(self._looked_s, state.read_s)
                continue
            try:
                await self.look()
            except HeadraceError as error:
                log.warning("erasures not looked at", reason=error.reason)


CLAIMS_MAX = 10
"""Maximum erasures assigned to one process at a time."""

LIST_MAX = 1000

TTL_MS_MAX = 10 * 60_000

_IDS = uuid.UUID("d5b4d2c0-4c1c-4a39-8b0e-6d4f3f0e9e6b")


@dataclass(slots=True)
class ErasureLease:
    """A claimed erasure in its latest stored form; its claim is extended regularly."""

    erasure: StoredErasure


class ErasureStore:
    def __init__(
        self, engine: Engine, refusals: Refusals, clock: Callable[[], int] = now_ms, *, held_ms: int = TTL_MS_MAX
    ) -> None:
        """A held claim is extended by `held_ms`, three times as often."""
        self._engine = engine
        self._refusals = refusals
        self._clock = clock
        self._held_ms = held_ms

    async def begin(self, request: data_pb2.EraseDataRequest) -> StoredErasure:
        """Store an erasure, or find the one that the request repeats; from then on this process refuses new work of its
        users."""
        erasure = await self._store(request)
        await self._refusals.look()
        return erasure

    async def _store(self, request: data_pb2.EraseDataRequest) -> StoredErasure:
        who = identity.require_identity()
        if bool(request.user) == bool(request.tenant):
            raise InvalidRequest.of("user", "or tenant is required, and not both")
        if request.tenant not in ("", who.tenant):
            raise InvalidRequest.of("tenant", "must be the caller's own")
        erasure_id = str(uuid.uuid5(_IDS, f"{who.tenant}/{request.request_id}")) if request.request_id else new_uuid()
        known = await self._engine.records.erasures.find(erasure_id)
        if known is None:
            going = (found for found in await self._engine.records.erasures.list_all() if found.state == GOING)
            of = (who.tenant, request.user)
            known = next((found for found in going if (found.tenant, found.user) == of), None)
        if known is not None:
            return await self._engine.records.erasures.keep(known)
        (await HoldStore(self._engine).read_in_force()).check(who.tenant, request.user)
        erasure = StoredErasure(
            erasure_id=erasure_id,
            tenant=who.tenant,
            user=request.user,
            version=make_version(),
            requested_by=who.user,
            requested_at=self._clock(),
            credential=who.credential,
            request_id=request.request_id,
            reason=request.reason,
        )
        details = {"erasureId": erasure_id, "of": request.user, "reason": request.reason}
        await self._engine.audit.record("erasure.requested", who, **details)
        if not await self._engine.records.erasures.put(erasure):
            # A statement with a lost response is repeated, and then finds its own erasure.
            erasures = self._engine.records.erasures
            erasure = await erasures.keep(await erasures.find(erasure_id) or erasure)
        return erasure

    async def get(self, erasure_id: str) -> StoredErasure:
        erasure = await self._engine.records.erasures.find(erasure_id)
        if erasure is None or erasure.tenant != identity.require_identity().tenant:
            raise NotFound(f"erasure {erasure_id} does not exist", erasureId=erasure_id)
        return erasure

    async def list_own(self) -> list[StoredErasure]:
        tenant = identity.require_identity().tenant
        own = [found for found in await self._engine.records.erasures.list_all() if found.tenant == tenant]
        return sorted(own, key=lambda found: (found.requested_at, found.erasure_id), reverse=True)[:LIST_MAX]

    async def claim(self, owner: str, ttl_ms: int, working_on: Collection[str] = ()) -> list[StoredErasure]:
        """Assign `owner` unclaimed erasures, and those it already has, oldest first."""
        now, claimed, has_changed = self._clock(), list[StoredErasure](), False
        going = [found for found in self._refusals.going if found.erasure_id not in working_on]
        for found in sorted(going, key=lambda found: found.requested_at):
            # Its earlier owner of the same name has ended.
            if len(claimed) < CLAIMS_MAX and (found.owner == owner or found.claimed_until <= now):
                change = replace(found, version=make_version(), owner=owner, claimed_until=now + _limit_ttl(ttl_ms))
                if await self._engine.records.erasures.put(change, found.version):
                    claimed.append(change)
                # Claimed here or, since the last look, elsewhere.
                has_changed = True
        if has_changed:
            await self._refusals.look()
        return claimed

    async def check_lease(self, erasure_id: str, owner: str) -> StoredErasure:
        """Return the erasure. Raises StaleLease if another process works on it, or it is done."""
        found = await self._engine.records.erasures.find(erasure_id)
        if found is None or found.owner != owner or found.state == DONE:
            raise StaleLease(f"erasure {erasure_id} is another's, or done", erasureId=erasure_id)
        return found

    async def change(self, erasure: StoredErasure, **changes: object) -> StoredErasure:
        """Store a change to the erasure as the caller read it. Raises StaleLease if it has changed since."""
        changed = replace(erasure, version=make_version(), **changes)
        if not await self._engine.records.erasures.put(changed, erasure.version):
            raise StaleLease(f"erasure {erasure.erasure_id} is another's", erasureId=erasure.erasure_id)
        if changed.state == DONE:
            await self._refusals.look()
        return changed

    async def prolong(self, erasure: StoredErasure, ttl_ms: int, counts: dict[str, int]) -> StoredErasure:
        until = self._clock() + _limit_ttl(ttl_ms)
        return await self.change(erasure, claimed_until=until, counts=counts, problem="")

    @asynccontextmanager
    async def holding(self, erasure: StoredErasure) -> AsyncGenerator[ErasureLease]:
        """Keep extending the claim inside the block; afterwards its erasure may be changed.

        Another process can claim it only if the store was unreachable; a change then raises StaleLease.
        """
        claim = ErasureLease(await self.prolong(erasure, self._held_ms, erasure.counts))
        is_left = asyncio.Event()
        task = guard_task(asyncio.create_task(self._prolong_until(is_left, claim)))
        try:
            yield claim
        finally:
            is_left.set()  # not cancelled: a change with an unread response would make our version outdated
            await asyncio.wait([task])

    async def _prolong_until(self, is_left: asyncio.Event, claim: ErasureLease) -> None:
        WORK.set(Work.RUN)  # the step that holds the claim may use the only connection for maintenance
        while True:
            try:
                async with asyncio.timeout(self._held_ms / 1000 / 3):
                    await is_left.wait()
                return
            except TimeoutError:
                pass
            try:
                claim.erasure = await self.prolong(claim.erasure, self._held_ms, claim.erasure.counts)
            except StaleLease:
                return
            except HeadraceError as error:  # in two more tries it may be there again
                log.warning("claim of an erasure not prolonged", reason=error.reason)

    def check_ready(self, erasure: StoredErasure) -> None:
        """Raise Overloaded while some service of the store may still accept new work, or the index may lack chats."""
        if (progress := self._engine.index.get_progress()) is not None:
            raise progress.make_error("what there is of the user")
        left_s = self._engine.eraser.drain_s - (self._clock() - erasure.requested_at) / 1000
        if left_s > 0:
            raise Overloaded("the erasure is not known everywhere; try again later", retry_after_s=left_s)

    def get_wait_s(self, erasure: StoredErasure) -> float:
        """Return how long the receipt must wait for requests accepted before all processes knew of the erasure, in
        seconds."""
        return max(0.0, self._engine.eraser.receipt_after_s - self._refusals.get_age_s(erasure))


def _limit_ttl(ttl_ms: int) -> int:
    return min(max(ttl_ms, 0), TTL_MS_MAX)
