"""Erases a user's or tenant's data from a store, in portions, and writes the receipt."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec

from headrace.errors import ChatBusy, NotFound
from services.memory.data.erased_parts import RemainingParts
from services.memory.data.holds import HoldStore
from services.memory.storage.records.erasures import DONE, Kept
from services.memory.storage.run_query import RunQuery
from services.runtime.clock import monotonic_s, now_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from services.memory.data.erased_parts import Part
    from services.memory.data.erasures import ErasureStore
    from services.memory.data.holds import HoldsInForce
    from services.memory.storage.engine import Engine
    from services.memory.storage.records.erasures import StoredErasure
    from services.memory.storage.run_query import RunEntry

PORTION_S = 5.0
"""Maximum time of one portion; its caller waits, and extends its claim."""

PARTS_MAX = 50
"""Maximum parts with counts stored together before they are erased."""

_PENDING = "pending:"
"""Prefix of names, among the counts, of parts already counted but perhaps not erased yet."""


class _By(msgspec.Struct):
    by: str = ""
    of: str = ""


_BY = msgspec.json.Decoder(_By)


class Eraser:
    def __init__(self, engine: Engine, erasures: ErasureStore, clock: Callable[[], int] = now_ms) -> None:
        self._engine = engine
        self._erasures = erasures
        self._clock = clock

    async def list_live_runs(self, erasure: StoredErasure) -> list[RunEntry]:
        parts, _ = await self._find_parts(erasure)
        return await parts.list_live_runs()

    async def erase_portion(self, erasure: StoredErasure) -> tuple[StoredErasure, bool, set[str]]:
        """Erase for some seconds; return the stored erasure, whether nothing is left, and the held chats skipped so
        far.

        Raises ChatBusy if a run must end first.
        """
        until_s = monotonic_s() + PORTION_S
        parts, _ = await self._find_parts(erasure)
        batch: list[Part] = []
        async with aclosing(parts.find_all()) as found:
            async for part in found:
                batch.append(part)
                if len(batch) == PARTS_MAX:
                    break
        if not batch:
            return erasure, True, {*parts.held_chats}
        erasure = await self._count(erasure, batch)
        await parts.delete_chats([part.chat_id for part in batch if part.chat_id], until_s)
        for part in batch:
            if part.erase is not None:
                await part.erase()
            if monotonic_s() > until_s:
                break
        return erasure, False, {*parts.held_chats}

    async def finish(self, erasure: StoredErasure) -> StoredErasure:
        """Write the receipt of an erasure with nothing left to erase. Raises ChatBusy otherwise."""
        async with self._erasures.holding(erasure) as claim:
            kept = await self._clear(erasure)
        changes = {"state": DONE, "done_at": self._clock(), "counts": _strip_pending(erasure.counts), "kept": kept}
        return await self._erasures.change(claim.erasure, **changes, redacted={}, problem="", owner="")

    async def _clear(self, erasure: StoredErasure) -> tuple[Kept, ...]:
        """Clear traces of deleted rows, write the audit record, and return the data kept. Raises ChatBusy."""
        parts, holds = await self._find_parts(erasure)
        async with aclosing(parts.find_all()) as left:
            async for part in left:
                raise ChatBusy(f"new data arrived in the meantime: {part.key.partition('/')[0]}")
        await self._engine.blobs.finish_deletions()
        eraser = self._engine.eraser
        for user in await parts.list_users() if erasure.user else ():
            await self._engine.records.webhooks.delete_deliveries_about(erasure.tenant, user)
            await eraser.rename_spender(erasure.tenant, user, parts.name)
        held = await self._list_held(erasure, parts, holds)
        if not erasure.user and not held:
            await eraser.delete_spend(erasure.tenant)

        def is_held(user: str, chat_id: str) -> bool:
            return chat_id in parts.held_chats or holds.find(erasure.tenant, user, chat_id) is not None

        await eraser.scrub(erasure.tenant, is_held)
        kept = held + parts.unread + await self._list_kept(erasure, parts.name)
        event = "user.erased" if erasure.user else "tenant.erased"
        counts = _strip_pending(erasure.counts)
        details = {"erasureId": erasure.erasure_id, "of": erasure.user, "reason": erasure.reason}
        # Before the receipt: an interruption here repeats the audit record, but never loses it.
        await self._engine.audit.record_of(
            erasure.tenant, event, erasure.requested_by, erasure.credential, **details, **counts
        )
        return tuple(kept)

    async def find_held(self, erasure: StoredErasure) -> tuple[list[str], list[str]]:
        """Return the chats and the users protected by holds."""
        holds = (await HoldStore(self._engine).read_in_force()).holds
        own = [hold for hold in holds if hold.tenant == erasure.tenant]
        return [hold.chat_id for hold in own if hold.chat_id], [hold.user for hold in own if hold.user]

    async def _find_parts(self, erasure: StoredErasure) -> tuple[RemainingParts, HoldsInForce]:
        holds = await HoldStore(self._engine).read_in_force()
        # A hold on everything may have been placed just as the erasure was requested; then it waits.
        holds.check(erasure.tenant, erasure.user)
        return RemainingParts(self._engine, erasure, holds), holds

    async def _count(self, erasure: StoredErasure, batch: Iterable[Part]) -> StoredErasure:
        """Store the counts of parts about to be erased, so that they survive a crash."""
        counts = _strip_pending(erasure.counts)
        pending: dict[str, int] = {}
        redacted = {chat_id: list(run_ids) for chat_id, run_ids in erasure.redacted.items()}
        for part in batch:
            mark = _PENDING + part.key
            pending[mark] = 1
            if mark not in erasure.counts:
                for name, count in part.counts.items():
                    counts[name] = counts.get(name, 0) + count
            if part.redacted is not None:
                chat_id, run_ids = part.redacted
                redacted[chat_id] = sorted({*redacted.get(chat_id, ()), *run_ids})
        return await self._erasures.change(erasure, counts=counts | pending, redacted=redacted)

    async def _list_kept(self, erasure: StoredErasure, name: str) -> list[Kept]:
        lines = 0
        async with aclosing(self._engine.audit.store.read_all(erasure.tenant)) as portions:
            async for portion in portions:
                lines += sum(not erasure.user or erasure.user in _read_names(line) for line in portion)
        kept = [Kept("audit_lines", str(lines), "evidence of who has done what, with a retention of its own")]
        keys = await self._engine.records.keys.list_own(erasure.tenant)
        revoked = sum(bool(key.revoked_at) and erasure.user in ("", key.user) for key in keys)
        if revoked:
            kept.append(Kept("revoked_keys", str(revoked), "without their secret, for 30 days after their end"))
        if erasure.user:
            kept.append(Kept("spend", name, "what was spent stays as numbers, under this name"))
        kept.append(Kept("this_receipt", erasure.erasure_id, "it says that the data was erased"))
        return kept

    async def _list_held(self, erasure: StoredErasure, parts: RemainingParts, holds: HoldsInForce) -> list[Kept]:
        """List the erasure's data protected by holds; call it after parts.find_all."""
        chats = dict(parts.held_chats)
        users: list[Kept] = []
        for hold in holds.holds:
            if hold.tenant != erasure.tenant:
                continue
            if hold.chat_id and await self._has_part_in(erasure, hold.chat_id):
                chats[hold.chat_id] = hold
            elif hold.user and not erasure.user:
                users.append(Kept("held_user", hold.user, f"hold {hold.hold_id}"))
        return [Kept("held_chat", chat_id, f"hold {hold.hold_id}") for chat_id, hold in sorted(chats.items())] + users

    async def _has_part_in(self, erasure: StoredErasure, chat_id: str) -> bool:
        try:
            row = await self._engine.index.find_row(chat_id)
        except NotFound:
            return False
        if erasure.user in ("", row.user):
            return True
        runs, _ = await self._engine.index.list_runs(RunQuery(erasure.tenant, 1, user=erasure.user, chat_ids=[chat_id]))
        return bool(runs)


def _strip_pending(counts: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in sorted(counts.items()) if not name.startswith(_PENDING)}


def _read_names(line: str) -> tuple[str, str]:
    try:
        record = _BY.decode(line)
    except msgspec.DecodeError:  # verify says so
        return "", ""
    return record.by, record.of
