"""A user's or tenant's data left to erase, in repeatable parts."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from headrace.errors import KeyUnavailable, LogDamaged, NotFound
from services.memory.data.holds import find_participants_hold, read_runs
from services.memory.data.redaction import Redaction
from services.memory.log.lines import ERASED_PREFIX
from services.memory.storage.paging import PAGE_MAX, Page, read_pages
from services.memory.storage.records.erasures import Kept
from services.memory.storage.run_query import RunQuery
from services.runtime.auth.identity import Identity
from services.runtime.clock import monotonic_s

if TYPE_CHECKING:
    from services.memory.data.holds import HoldsInForce
    from services.memory.storage.engine import Engine
    from services.memory.storage.records.erasures import StoredErasure, StoredHold
    from services.memory.storage.run_query import RunEntry


@dataclass(frozen=True, slots=True)
class Part:
    key: str
    """Identifies the part, so that a repeated one is counted once."""
    counts: dict[str, int]
    erase: Callable[[], Awaitable[object]] | None = None
    chat_id: str = ""
    """The part is this chat, which is deleted together with those of other parts."""
    redacted: tuple[str, list[str]] | None = None
    """A chat of another user, and the erased runs in it."""


class RemainingParts:
    """Finds the remaining data of an erasure's users, except data under `holds`."""

    def __init__(self, engine: Engine, erasure: StoredErasure, holds: HoldsInForce) -> None:
        self._engine = engine
        self._erasure = erasure
        self._holds = holds
        self.unread: list[Kept] = []
        """Data found by find_all that cannot be erased, because it cannot be read."""
        self.held_chats: dict[str, StoredHold] = {}
        """Held chats that find_all has skipped."""
        self._has_run_webhooks: bool | None = None

    @property
    def name(self) -> str:
        """The name that replaces the users' names."""
        return ERASED_PREFIX + self._erasure.erasure_id

    async def list_users(self) -> list[str]:
        """Return the users to erase."""
        engine, tenant, users = self._engine, self._erasure.tenant, {self._erasure.user}
        if not self._erasure.user:
            users = await engine.eraser.list_users(tenant) | await engine.records.facts.list_users(tenant)
            users |= {user for records in engine.records.kinds for user in await records.list_users(tenant)}
        return [user for user in sorted(users) if not self._holds.find(tenant, user)]

    async def list_live_runs(self) -> list[RunEntry]:
        """List unfinished runs of these users or in their chats."""
        tenant = self._erasure.tenant
        users = set(await self.list_users())
        live = read_runs(self._engine, RunQuery(tenant, PAGE_MAX, state="live"))
        found = [run async for run in live if users & {run.user, run.chat_owner}]
        # Not those of logs that are damaged, to which no end can be written.
        unfinished: set[str] = set()
        for chat_id in {run.chat_id for run in found}:
            unfinished |= {run.run_id for run in await self._engine.index.list_unfinished(chat_id)}
            if await self._find_obstacle(chat_id) is not None:  # nor to these, but their owners must release them
                ownerless = await self._engine.index.list_unfinished(chat_id, without_owner=True)
                unfinished -= {run.run_id for run in ownerless}
        return [run for run in found if run.run_id in unfinished]

    async def find_all(self) -> AsyncGenerator[Part]:
        """Yield the remaining parts; data erased in the meantime is not yielded again."""
        self.unread.clear()
        self.held_chats.clear()
        for user in await self.list_users():
            who = Identity(self._erasure.tenant, user)
            async for part in self._find_chats(who):
                yield part
            # After the users' own chats, so that few runs remain to be searched.
            async for part in self._find_redactions(who):
                yield part
            async for part in self._find_records(who):
                yield part
        async for part in self._find_run_webhooks():
            yield part
        if not self._erasure.user:
            async for part in self._find_of_tenant():
                yield part
        async for part in self._find_unreadable():
            yield part

    async def _find_redactions(self, who: Identity) -> AsyncGenerator[Part]:
        by_chat: defaultdict[str, list[str]] = defaultdict(list)
        async for run in read_runs(self._engine, RunQuery(who.tenant, PAGE_MAX, user=who.user)):
            if run.chat_owner == who.user:
                continue
            if hold := self._holds.find(who.tenant, run.chat_owner, run.chat_id):
                self.held_chats[run.chat_id] = hold
            else:
                by_chat[run.chat_id].append(run.run_id)
        for chat_id, run_ids in by_chat.items():
            if obstacle := await self._find_obstacle(chat_id):
                name, why = obstacle
                reason = f"{len(run_ids)} runs of {who.user} are in it, which cannot be redacted: {why}"
                self.unread.append(Kept(name, chat_id, reason))
                continue
            counts = {"runs_in_others_chats": len(run_ids)}
            redact = partial(self._redact_chat, who, chat_id, run_ids)
            yield Part(f"redact/{chat_id}/{who.user}", counts, redact, redacted=(chat_id, run_ids))

    async def _find_chats(self, who: Identity) -> AsyncGenerator[Part]:
        list_rows = partial(self._engine.index.list_rows, who)
        async for entry in read_pages(list_rows, Page(PAGE_MAX)):
            if not await self._find_hold(who, entry.chat_id):
                yield Part(f"chat/{entry.chat_id}", {"chats": 1}, chat_id=entry.chat_id)

    async def _find_records(self, who: Identity) -> AsyncGenerator[Part]:
        facts = self._engine.records.facts
        stored, count = await facts.count_own(who)
        if stored:
            yield Part(f"facts/{who.user}", {"facts": count}, partial(facts.delete_own, who))
        async for part in self._find_of_kinds(who):
            yield part

    async def _find_of_kinds(self, who: Identity) -> AsyncGenerator[Part]:
        """Yield records of a user, or of the tenant itself for ""."""
        way, _, digest = self._erasure.credential.partition(":")
        keys = await self._engine.records.keys.list_own(self._erasure.tenant) if way == "api_key" else []
        kept = [key.key_id for key in keys if key.sha256.startswith(digest)]  # it has asked for the erasure
        for records in self._engine.records.kinds:
            for record_id in await records.list_erasable(who.tenant, who.user):
                if record_id not in kept:
                    counts = {records.kind.plural: 1}
                    yield Part(f"{records.kind.name}/{record_id}", counts, partial(records.erase, record_id))

    async def _find_run_webhooks(self) -> AsyncGenerator[Part]:
        """Yield webhooks of runs in chats deleted earlier, of any owner; for a tenant, all except those of held
        chats.

        A user's webhooks are erased with the runs.
        """
        engine, tenant, webhooks = self._engine, self._erasure.tenant, self._engine.records.webhooks
        of_runs = {webhook_id: run_id for webhook_id, run_id in await webhooks.list_ids(tenant) if run_id}
        if not of_runs or (await self._list_unreadable())["chats"]:
            return  # or they may be of runs in those
        run_ids, kept = sorted(set(of_runs.values())), set[str]()
        for first in range(0, len(run_ids), PAGE_MAX):
            query = RunQuery(tenant, PAGE_MAX, run_ids=run_ids[first : first + PAGE_MAX])
            for run in (await engine.index.list_runs(query))[0]:
                if self._erasure.user or await self._find_hold(Identity(tenant, run.chat_owner), run.chat_id):
                    kept.add(run.run_id)
        for webhook_id, run_id in of_runs.items():
            if run_id not in kept:
                yield Part(f"webhook/{webhook_id}", {"run_webhooks": 1}, partial(webhooks.delete, webhook_id))

    async def _find_of_tenant(self) -> AsyncGenerator[Part]:
        tenant, webhooks = self._erasure.tenant, self._engine.records.webhooks
        for webhook_id, run_id in await webhooks.list_ids(tenant):
            if not run_id:
                yield Part(f"webhook/{webhook_id}", {"webhooks": 1}, partial(webhooks.delete, webhook_id))
        async for part in self._find_of_kinds(Identity(tenant, "")):
            yield part
        versions = self._engine.records.agent_versions
        if count := await versions.count_own(tenant):
            yield Part("agent_versions", {"agent_versions": count}, partial(versions.delete_own, tenant))

    async def _list_unreadable(self) -> dict[str, list[str]]:
        """List data whose owner only a lost key could reveal. Raises Overloaded if a key may soon be available."""
        engine, tenant = self._engine, self._erasure.tenant
        await engine.rewriting.keys.open_all(tenant)
        return {
            "chats": await engine.eraser.list_unreadable_chats(tenant),
            "agents": await engine.records.agents.list_unreadable(tenant),
        }

    async def _delete_unreadable(self, kind: str, names: list[str]) -> None:
        is_chat = kind == "chats"
        for name in names:
            await (self._engine.eraser.delete_unreadable_chat if is_chat else self._engine.records.agents.delete)(name)

    async def _find_unreadable(self) -> AsyncGenerator[Part]:
        """Yield the tenant's data with unknown owners. It is erased with the tenant, unless it may belong to a held
        user."""
        tenant, user = self._erasure.tenant, self._erasure.user
        holds = {hold.chat_id: hold for hold in self._holds.holds if hold.tenant == tenant and hold.chat_id}
        for kind, names in (await self._list_unreadable()).items():
            held = {name: holds[name] for name in names if kind == "chats" and name in holds}
            self.unread += [Kept("held_chat", name, f"hold {hold.hold_id}") for name, hold in held.items()]
            going = [name for name in names if name not in held]
            if not going or (user and kind == "agents"):
                continue
            if user or any(hold.user for hold in self._holds.holds if hold.tenant == tenant):
                reason = "whose they are cannot be known: their key is lost, or they are damaged"
                self.unread.append(Kept(f"unreadable_{kind}", str(len(going)), reason))
            else:
                delete = partial(self._delete_unreadable, kind, going)
                yield Part(f"unreadable/{kind}", {kind: len(going)}, delete)

    async def _find_hold(self, owner: Identity, chat_id: str) -> StoredHold | None:
        """Return the hold that protects a chat from deletion, and remember it."""
        hold = self._holds.find(owner.tenant, owner.user, chat_id)
        hold = hold or await find_participants_hold(self._engine, self._holds, owner.tenant, chat_id)
        if hold is not None:
            self.held_chats[chat_id] = hold
        return hold

    async def _find_obstacle(self, chat_id: str) -> tuple[str, str] | None:
        """Return the kind of obstacle to changing the chat, and its description; None if there is none. Raises
        Overloaded if its key may soon be available."""
        with suppress(NotFound):
            try:
                chat = await self._engine.chats.load(chat_id)
            except KeyUnavailable:
                return "unreadable_chat", "its key is lost"
            except LogDamaged:
                return "damaged_chat", "its log is damaged"
            if chat.info.is_damaged:
                return "damaged_chat", "its log is damaged"
        return None

    async def delete_chats(self, chat_ids: list[str], until_s: float) -> None:
        """Delete chats, with all that is kept of their runs. Raises ChatBusy.

        An engine that deletes them one by one leaves the rest for later at `until_s`.
        """
        if not chat_ids:
            return
        query = RunQuery(self._erasure.tenant, PAGE_MAX, chat_ids=chat_ids)
        await self._forget_runs(query.tenant, [run.run_id async for run in read_runs(self._engine, query)])
        deleted = await self._engine.chats.delete_together(chat_ids)
        for chat_id in filter(lambda chat_id: chat_id not in deleted, chat_ids):
            with suppress(NotFound):
                if blob_ids := await self._engine.blobs.list_ids(chat_id):
                    await self._engine.blobs.delete_each(chat_id, blob_ids)  # first, as in _redact_chat
                await self._engine.chats.delete(chat_id)
            if monotonic_s() > until_s:
                return

    async def _redact_chat(self, who: Identity, chat_id: str, run_ids: list[str]) -> None:
        engine = self._engine
        with suppress(NotFound):
            # Before the chat is read: a run's query is logged before its blobs, and ended runs have logged their blobs.
            blob_ids = await engine.blobs.list_ids(chat_id)
            chat = await engine.chats.load(chat_id)
            chat.check_idle()  # before its lines name blobs that are gone
            before = await engine.chats.export(chat)
            redact = Redaction(who.user, self.name).redact_log
            after = await asyncio.to_thread(redact, before)
            # Blobs first, because after a crash the chat is found again by lines that are redacted last. A blob in no
            # line belongs to one that was never written.
            gone = await asyncio.to_thread(lambda: [it for it in blob_ids if it.encode() not in after])
            await engine.blobs.delete_each(chat_id, gone)
            # Another line may have been added in the meantime.
            again = Redaction(who.user, self.name).redact_log
            await engine.eraser.rewrite_chat(chat_id, lambda log: after if log == before else again(log))
        await self._forget_runs(who.tenant, run_ids)

    async def _forget_runs(self, tenant: str, run_ids: list[str]) -> None:
        engine = self._engine
        await engine.records.webhooks.delete_deliveries(tenant, run_ids)
        if self._has_run_webhooks is None:  # of those made meanwhile, _find_run_webhooks finds the run's rest
            self._has_run_webhooks = bool(await engine.records.webhooks.count_of_runs(tenant))
        if self._has_run_webhooks:
            await engine.records.webhooks.delete_of_runs(tenant, run_ids)
