"""The records of a store: everything in it except chats, the index built from them, and blobs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from services.memory.storage.records import agent_versions, user_facts
from services.memory.storage.records.agent_versions import AgentVersions
from services.memory.storage.records.agents import AGENTS, StoredAgents
from services.memory.storage.records.erasures import CLAIMS, ERASURES, HOLDS
from services.memory.storage.records.keys import KEYS, Keys
from services.memory.storage.records.kind import Kind, Records
from services.memory.storage.records.schedules import SCHEDULES, Schedules
from services.memory.storage.records.user_facts import UserFacts
from services.memory.storage.records.webhooks import WEBHOOKS

if TYPE_CHECKING:
    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.encrypted.reencryption import Piece
    from services.memory.storage.records.deliveries import Webhooks
    from services.memory.storage.records.erasures import StoredClaim, StoredErasure, StoredHold
    from services.memory.storage.sql import Sql

KINDS: tuple[Kind[Any], ...] = (SCHEDULES, KEYS, AGENTS, WEBHOOKS, ERASURES, HOLDS)

TABLES = (
    *(statement for kind in KINDS if kind is not WEBHOOKS for statement in kind.list_tables()),
    *user_facts.TABLES,
    *agent_versions.TABLES,
)
"""Statements that create missing tables in a SQLite file; webhooks have a separate file."""


@dataclass(frozen=True, slots=True)
class RecordStores:
    agents: StoredAgents
    agent_versions: AgentVersions
    facts: UserFacts
    schedules: Schedules
    keys: Keys
    webhooks: Webhooks
    erasures: Records[StoredErasure]
    holds: Records[StoredHold]
    claims: Records[StoredClaim]
    """Claims belong to no tenant, and are worthless once they expire."""

    @property
    def kinds(self) -> tuple[Records[Any], ...]:
        return (self.schedules, self.keys, self.agents, self.webhooks, self.erasures, self.holds)

    @property
    def sources(self) -> tuple[Callable[[], AsyncIterator[Piece]], ...]:
        """All records, piece by piece, for conversion to their current encrypted form."""
        return (*(records.list_pieces for records in (*self.kinds, self.facts, self.agent_versions)),)


def make_stores(sql: Sql, keys: Keyring, webhooks: Webhooks) -> RecordStores:
    return RecordStores(
        agents=StoredAgents(sql, keys),
        agent_versions=AgentVersions(sql, keys),
        facts=UserFacts(sql, keys),
        schedules=Schedules(sql, keys),
        keys=Keys(sql),
        webhooks=webhooks,
        erasures=Records(sql, ERASURES),
        holds=Records(sql, HOLDS),
        claims=Records(sql, CLAIMS, keys),
    )
