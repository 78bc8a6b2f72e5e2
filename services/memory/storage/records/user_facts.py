"""Facts about users: rows of a table, and lines of JSON in exports."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from sys import intern
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from services.memory.encryption.envelope import WrongCiphertext, is_encrypted
from services.memory.encryption.keyring import NO_KEYS, make_damaged_error
from services.runtime.auth.identity import Identity
from services.runtime.clock import now_ms
from services.runtime.randomness import new_uuid

if TYPE_CHECKING:
    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.encrypted.reencryption import Piece
    from services.memory.storage.sql import Row, Sql, Statement

Scope: TypeAlias = Literal["user", "agent", "tenant", "plan"]


class Source(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    chat_id: str = ""
    run_id: str = ""
    n: int = 0

    @classmethod
    def create(cls, chat_id: str, run_id: str, n: int) -> Source:
        return cls(chat_id, run_id, n) if chat_id else NO_SOURCE


NO_SOURCE = Source()
"""The source that is omitted from a fact's line."""


class Fact(msgspec.Struct, frozen=True, tag_field="_type", tag="fact", rename="camel", omit_defaults=True):
    n: int = msgspec.field(name="_n")
    """Its fixed position among the facts of all users; 0 before it is stored."""
    uuid: str
    request_id: str
    updated_at: int
    user: str = msgspec.field(name="_user")
    """The user who stored it, even for a tenant's fact, which all users of the tenant see."""
    text: str
    tenant: str = msgspec.field(name="_tenant", default="")
    scope: Scope = "user"
    agent_key: str = ""
    topic: str = ""
    source: Source = NO_SOURCE
    created_at: int = 0
    """Unix milliseconds; 0 for a fact of the first version that was never changed."""
    ended_at: int = 0
    replaced_by: str = ""
    deleted_at: int = 0
    """Unix milliseconds; if not 0, a tombstone without text, topic, source and vector."""
    vector: bytes = b""
    """Vector of topic and text, normalized to length 1, as little-endian 32-bit floats; empty without one."""
    vector_model: str = ""
    """The model that created it, as provider/model."""

    @property
    def owner(self) -> Identity:
        return Identity.from_stored(self.tenant, self.user)

    @property
    def place(self) -> Identity:
        """Its owner; for a tenant's fact, a user without a name."""
        return Identity(self.owner.tenant, "") if self.scope == "tenant" else self.owner

    @property
    def key(self) -> str:
        """A key that is unique among a user's facts."""
        return self.request_id or self.uuid

    @property
    def is_valid(self) -> bool:
        return not (self.ended_at or self.deleted_at)

    @property
    def question(self) -> str:
        """A plan's question, the first line of its text."""
        return self.text.partition("\n")[0]


@dataclass(frozen=True, slots=True)
class FactChange:
    fact: Fact
    """The requested fact, in its state after the change."""
    changed: Sequence[Fact] = ()
    """Facts to store; new ones have the number 0."""


MakeChange: TypeAlias = Callable[[Sequence[Fact]], FactChange]
"""Creates a change from the facts that a user sees, including tombstones; may be called again for the same change."""


def make_fact(owner: Identity, text: str, request_id: str) -> Fact:
    now = now_ms()
    return Fact(0, new_uuid(), request_id, now, owner.user, text, owner.tenant, created_at=now)


_LINE = msgspec.json.Decoder(Fact | list[Fact])


def encode_fact(fact: Fact) -> bytes:
    return msgspec.json.encode(fact) + b"\n"


def decode_facts(data: bytes) -> Iterable[Fact]:
    """Decode a line of an export. Raises msgspec.DecodeError if it holds no facts."""
    found = _LINE.decode(data)
    return [found] if isinstance(found, Fact) else found


TABLES = (
    """
    CREATE TABLE IF NOT EXISTS facts (
        n INTEGER PRIMARY KEY AUTOINCREMENT, fact_id text NOT NULL UNIQUE, key text NOT NULL, request_id text NOT NULL,
        updated_at bigint NOT NULL, user_name text NOT NULL, text text NOT NULL, tenant text NOT NULL,
        scope text NOT NULL, agent_key text NOT NULL, topic text NOT NULL, chat_id text NOT NULL, run_id text NOT NULL,
        line_n bigint NOT NULL, created_at bigint NOT NULL, ended_at bigint NOT NULL, replaced_by text NOT NULL,
        deleted_at bigint NOT NULL, vector blob NOT NULL, vector_model text NOT NULL, UNIQUE (tenant, user_name, key))
    """,
    "CREATE INDEX IF NOT EXISTS facts_of_tenants ON facts (tenant) WHERE scope = 'tenant'",
)

_TEXT_COLUMNS = """fact_id, request_id, updated_at, user_name, text, tenant, scope, agent_key, topic, chat_id, run_id,
    line_n, created_at, ended_at, replaced_by, deleted_at"""

_COLUMNS = f"{_TEXT_COLUMNS}, vector, vector_model"

_INSERT = f"""
INSERT INTO facts ({_COLUMNS}, key)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
"""

_STORE = f"""{_INSERT}
ON CONFLICT (fact_id) DO UPDATE SET text = EXCLUDED.text, topic = EXCLUDED.topic, updated_at = EXCLUDED.updated_at,
    key = EXCLUDED.key, request_id = EXCLUDED.request_id, created_at = EXCLUDED.created_at,
    chat_id = EXCLUDED.chat_id, run_id = EXCLUDED.run_id, line_n = EXCLUDED.line_n,
    ended_at = EXCLUDED.ended_at, replaced_by = EXCLUDED.replaced_by, deleted_at = EXCLUDED.deleted_at,
    vector = EXCLUDED.vector, vector_model = EXCLUDED.vector_model
"""

_IMPORT = f"{_INSERT} ON CONFLICT DO NOTHING"

_ALL = f"SELECT n, {_COLUMNS} FROM facts"

_VISIBLE, _VISIBLE_TEXTS = (
    f"SELECT n, {columns} FROM facts WHERE tenant = $1 AND user_name = $2 AND scope <> 'tenant' "
    f"UNION ALL SELECT n, {columns} FROM facts WHERE tenant = $1 AND scope = 'tenant' ORDER BY n"
    for columns in (_COLUMNS, _TEXT_COLUMNS)
)

_COUNT = "SELECT count(*), count(CASE WHEN deleted_at = 0 THEN 1 END) FROM facts WHERE tenant = $1 AND user_name = $2"

_DELETE = "DELETE FROM facts WHERE tenant = $1 AND user_name = $2 RETURNING deleted_at"

_PUT_TEXTS = """
UPDATE facts SET text = $2, topic = $3, vector = $4 WHERE fact_id = $1 AND text = $5 AND topic = $6 AND vector = $7
RETURNING 1
"""


class UserFacts:
    """The facts of all users; a tenant's are changed by one writer at a time."""

    def __init__(self, sql: Sql, keys: Keyring = NO_KEYS) -> None:
        self._sql = sql
        self._keys = keys

    async def list_visible(self, owner: Identity, *, with_vectors: bool = False) -> list[Fact]:
        """List the user's facts and the tenant's, including tombstones, in storage order.

        Vectors, which may be megabytes, are read only on request.
        """
        rows = await self._fetch(_VISIBLE if with_vectors else _VISIBLE_TEXTS, owner.tenant, owner.user)
        await self._keys.open_for(row[5] for row in rows)
        return [decrypt_fact(_read_fact(row), self._keys) for row in rows]

    async def change(self, owner: Identity, make: MakeChange) -> Fact:
        """Change facts visible to `owner`, one change at a time, and return the resulting fact.

        `make` gets facts without vectors; a fact that it changes loses its vector, which is created again later. On
        return no file or table of the store contains a removed text.
        """
        await self._keys.prepare(owner.tenant)

        def decide(rows: list[Row]) -> tuple[list[Statement], tuple[Fact, bool]]:
            before = {fact.uuid: fact for row in rows for fact in [decrypt_fact(_read_fact(row), self._keys)]}
            change = make([*before.values()])
            loses_text = any(
                (old := before.get(fact.uuid)) is not None and (old.text, old.topic) != (fact.text, fact.topic)
                for fact in change.changed
            )
            stores: list[Statement] = [
                (_STORE, _list_values(encrypt_fact(fact, self._keys))) for fact in change.changed
            ]
            return stores, (change.fact, loses_text)

        read = (_VISIBLE_TEXTS, (owner.tenant, owner.user))
        fact, loses_text = await self._sql.decide(f"headrace facts {owner.tenant}", read, decide)
        if loses_text:
            await self._sql.scrub("facts")
        return fact

    async def list_all(self) -> list[Fact]:
        """List the readable facts of all users, in storage order."""
        rows = await self._keys.select_readable(await self._fetch(f"{_ALL} ORDER BY n"), lambda row: row[5])
        return [decrypt_fact(_read_fact(row), self._keys) for row in rows]

    async def import_all(self, facts: Iterable[Fact]) -> None:
        """Store facts of another store unchanged; known ones are skipped."""
        facts = list(facts)
        for tenant in {fact.owner.tenant for fact in facts}:
            await self._keys.prepare(tenant)
        await self._sql.run(*(make_import(fact, self._keys) for fact in facts))

    async def count_own(self, owner: Identity) -> tuple[int, int]:
        """Return the number of facts that the user has stored, including tombstones and the tenant's facts, and how
        many have a text."""
        stored, valid = (await self._fetch(_COUNT, owner.tenant, owner.user))[0]
        return stored, valid

    async def delete_own(self, owner: Identity) -> int:
        """Delete the facts counted by `count_own`; return how many had a text. No key is needed."""
        return sum(row[0] == 0 for row in await self._fetch(_DELETE, owner.tenant, owner.user))

    async def list_users(self, tenant: str) -> set[str]:
        return {row[0] for row in await self._fetch("SELECT DISTINCT user_name FROM facts WHERE tenant = $1", tenant)}

    async def list_pieces(self) -> AsyncGenerator[Piece]:
        """Yield each fact's name, with a function that converts it to its current form."""
        for (fact_id,) in await self._fetch("SELECT fact_id FROM facts ORDER BY n"):
            yield f"fact {fact_id}", partial(self._rewrite, fact_id)

    async def _rewrite(self, fact_id: str) -> bool:
        rows = await self._fetch(f"{_ALL} WHERE fact_id = $1", fact_id)
        stored = _read_fact(rows[0]) if rows else None
        if stored is None or not stored.text or self._keys.is_current_text(stored.owner.tenant, stored.text):
            return False
        await self._keys.prepare_newest(stored.owner.tenant)
        await self._keys.open_for([stored.text, stored.topic, stored.vector])
        new = encrypt_fact(decrypt_fact(stored, self._keys), self._keys)
        parts = (fact_id, new.text, new.topic, new.vector, stored.text, stored.topic, stored.vector)
        return bool(await self._fetch(_PUT_TEXTS, *parts))

    async def _fetch(self, text: str, *values: str | bytes) -> list[Row]:
        return (await self._sql.run((text, values)))[0]


def make_import(fact: Fact, keys: Keyring) -> Statement:
    """Return the statement that stores an unknown fact unchanged; the tenant's key must be loaded."""
    return _IMPORT, _list_values(encrypt_fact(fact, keys))


def _read_fact(row: Row) -> Fact:
    *head, scope, agent_key, topic = row[:10]
    # msgspec leaves a default out by its identity.
    values: list[Any] = [*head, intern(scope), agent_key, topic, Source.create(*row[10:13]), *row[13:]]
    return Fact(*values)


def _list_values(fact: Fact) -> list[str | int | bytes]:
    source, owner = fact.source, fact.owner
    values: list[str | int | bytes] = [fact.uuid, fact.request_id, fact.updated_at, owner.user, fact.text, owner.tenant]
    values += [fact.scope, fact.agent_key, fact.topic, source.chat_id, source.run_id, source.n]
    values += [fact.created_at, fact.ended_at, fact.replaced_by, fact.deleted_at]
    return [*values, fact.vector, fact.vector_model, fact.key]


def encrypt_fact(fact: Fact, keys: Keyring) -> Fact:
    """Return a fact with encrypted text, topic and vector; the tenant's key must be loaded."""
    if not keys.encrypts:
        return fact
    tenant = fact.owner.tenant
    vector = keys.encrypt(tenant, _name_part(fact, b"vector"), fact.vector) if fact.vector else b""
    text, topic = (
        keys.encrypt_text(tenant, _name_part(fact, name), part)
        for name, part in ((b"text", fact.text), (b"topic", fact.topic))
    )
    return replace(fact, text=text, topic=topic, vector=vector)


def decrypt_fact(fact: Fact, keys: Keyring) -> Fact:
    """Raises LogDamaged, KeyUnavailable, Overloaded."""
    text = keys.decrypt_text(_name_part(fact, b"text"), fact.text)
    topic = keys.decrypt_text(_name_part(fact, b"topic"), fact.topic)
    vector = fact.vector
    if is_encrypted(vector):
        context = _name_part(fact, b"vector")
        try:
            vector = keys.decrypt(context, vector)
        except WrongCiphertext as error:
            raise make_damaged_error(context) from error
    if text is fact.text and topic is fact.topic and vector is fact.vector:
        return fact
    return replace(fact, text=text, topic=topic, vector=vector)


def _name_part(fact: Fact, part: bytes) -> bytes:
    return b"fact\0%b\0%b" % (fact.uuid.encode(), part)
