"""The partitioned form of the tables that grow with every line: each in parts, by a hash of its chat or its tenant.

A table becomes partitioned while services write to it. A twin is made of the table's description in the catalog, a
trigger repeats each change there, rows are copied block by block, and at last the twin takes the table's place and
name. Each step is one short transaction; a command that is interrupted continues where it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import asyncpg

from services.memory.storage.postgres.migrations import ATTEMPTS_MAX, TIMEOUT_S

if TYPE_CHECKING:
    from services.memory.storage.postgres.connection.session import Connection

PARTS = 16

BATCH_BYTES = 1 << 20
"""How much of a table one transaction copies; its rows cannot change meanwhile."""

LOCK_TIMEOUT_MS = 500
"""Maximum wait for a lock: below PostgreSQL's deadlock_timeout, so that no service's transaction is the victim."""

RETRY_DELAY_S = 0.2

LOCK = 0x7061727469746973
"""An advisory lock, so that a second command waits for the first."""


@dataclass(frozen=True, slots=True)
class Partitioning:
    table: str
    column: str
    """The column by whose hash rows are distributed."""
    key: str = ""
    """Columns of the primary key, if the key of the whole table lacks `column`."""

    @property
    def twin(self) -> str:
        return f"{self.table}_twin"


TABLES = (
    Partitioning("lines", "chat"),
    Partitioning("texts", "tenant", "tenant, user_name, id"),
    Partitioning("blobs", "chat_id"),
    Partitioning("spend", "chat"),
    Partitioning("spend_sums", "tenant"),
    Partitioning("audit", "tenant"),
)

_IS_PARTITIONED = "SELECT relkind = 'p' FROM pg_class WHERE oid = $1::regclass"
_COLUMNS = """
SELECT attname, format_type(atttypid, atttypmod), attstattarget, attidentity <> '' FROM pg_attribute
WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_CONSTRAINTS = """
SELECT pg_get_constraintdef(oid), nullif(confrelid, 0)::regclass::text FROM pg_constraint
WHERE conrelid = $1::regclass AND contype = $2
"""
_INDEXES = """
SELECT pg_get_indexdef(indexrelid), indexrelid::regclass::text FROM pg_index
WHERE indrelid = $1::regclass AND NOT indisunique ORDER BY indexrelid
"""
_TRIGGERS = "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = $1::regclass AND NOT tgisinternal"

_FILE = "SELECT pg_relation_filenode($1::regclass)::bigint"
"""Another file: VACUUM FULL has moved the rows."""
_BLOCKS = "SELECT pg_relation_size($1::regclass) / current_setting('block_size')::bigint"
_BATCH_BLOCKS = f"SELECT greatest(1, {BATCH_BYTES} / current_setting('block_size')::bigint)"

_MAKE_PROGRESS = """
CREATE TABLE IF NOT EXISTS headrace_copies (
    table_name text PRIMARY KEY, file bigint NOT NULL, next_block bigint NOT NULL, blocks bigint NOT NULL)
"""
_PROGRESS = "SELECT file, next_block, blocks FROM headrace_copies WHERE table_name = $1"


async def partition_tables(report: Callable[[str], None], connection: Connection) -> None:
    """Partition each table that is not; `report` receives a line for each."""
    await connection.execute("SET statement_timeout = 0")
    try:
        await connection.execute("SELECT pg_advisory_lock($1)", LOCK, timeout=TIMEOUT_S)
        await connection.execute(_MAKE_PROGRESS)
        for of in TABLES:
            if await connection.fetchval(_IS_PARTITIONED, of.table):
                report(f"{of.table}: is partitioned")
                continue
            while not await _partition_table(of, connection):
                await _lock_tables(of, "ACCESS EXCLUSIVE", connection, partial(_drop_twin, of, connection))
            await connection.execute(f"ANALYZE {of.table}", timeout=TIMEOUT_S)
            report(f"{of.table}: partitioned")
        await connection.execute("DROP TABLE headrace_copies")
    finally:
        await connection.execute("SELECT pg_advisory_unlock_all()")
        await connection.execute("RESET statement_timeout")


async def _partition_table(of: Partitioning, connection: Connection) -> bool:
    """Return False if the twin is no longer one: the table was altered or rewritten since."""
    if await connection.fetchrow(_PROGRESS, of.table) is None:
        await _lock_tables(of, "SHARE ROW EXCLUSIVE", connection, partial(_make_twin, of, connection))
    step = await connection.fetchval(_BATCH_BLOCKS)
    file, next_block, blocks = await connection.fetchrow(_PROGRESS, of.table)
    while next_block < blocks:
        copy = partial(_copy_blocks, of, next_block, next_block + step, file, connection)
        if not await _lock_tables(of, "ROW SHARE", connection, copy):
            return False
        next_block += step
    return await _lock_tables(of, "ACCESS EXCLUSIVE", connection, partial(_replace_table, of, file, connection))


async def _lock_tables(of: Partitioning, mode: str, connection: Connection, do: Callable[[], Awaitable[bool]]) -> bool:
    """Call `do` in a transaction that has locked the table, and first those that it refers to, as writers do."""
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            async with connection.transaction():
                await connection.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
                referred = [row[1] for row in await connection.fetch(_CONSTRAINTS, of.table, b"f")]
                await connection.execute(f"LOCK TABLE {', '.join([*referred, of.table])} IN {mode} MODE")
                return await do()
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
            if attempt == ATTEMPTS_MAX:
                raise
            await asyncio.sleep(RETRY_DELAY_S)
    raise AssertionError("each attempt returns or raises")


async def _make_twin(of: Partitioning, connection: Connection) -> bool:
    twin, columns = of.twin, await connection.fetch(_COLUMNS, of.table)
    own = await connection.fetchval(_CONSTRAINTS, of.table, b"p")
    key = of.key or own.removeprefix("PRIMARY KEY (").removesuffix(")")
    statements = [
        f"CREATE TABLE {twin} (LIKE {of.table} INCLUDING ALL EXCLUDING INDEXES EXCLUDING IDENTITY)"
        f" PARTITION BY HASH ({of.column})",
        *(
            f"CREATE TABLE {of.table}_p{n} PARTITION OF {twin} FOR VALUES WITH (MODULUS {PARTS}, REMAINDER {n})"
            for n in range(PARTS)
        ),
        f"ALTER TABLE {twin} ADD CONSTRAINT {twin}_pkey PRIMARY KEY ({key})",
    ]
    for definition, _ in await connection.fetch(_CONSTRAINTS, of.table, b"f"):
        statements.append(f"ALTER TABLE {twin} ADD {definition}")
    for definition, _ in await connection.fetch(_INDEXES, of.table):
        if not definition.endswith(f"({key})"):
            head, _, rest = definition.partition(" ON ")
            statements.append(f"{head}_twin ON {twin} USING{rest.partition(' USING')[2]}")
    # The planner keeps no samples of what people wrote, as in the whole table.
    statements += [
        f"ALTER TABLE {twin} ALTER {name} SET STATISTICS {target}" for name, _, target, _ in columns if target == 0
    ]
    names = [column[0] for column in columns]
    statements += [
        f"""
        CREATE FUNCTION {twin}_copy() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF TG_OP <> 'INSERT' THEN
                DELETE FROM {twin} WHERE ({key}) = ({", ".join(f"OLD.{name}" for name in key.split(", "))});
            END IF;
            IF TG_OP <> 'DELETE' THEN
                INSERT INTO {twin} ({", ".join(names)}) VALUES ({", ".join(f"NEW.{name}" for name in names)});
            END IF;
            RETURN NULL;
        END $$""",
        f"CREATE TRIGGER {twin}_copy AFTER INSERT OR UPDATE OR DELETE ON {of.table}"
        f" FOR EACH ROW EXECUTE FUNCTION {twin}_copy()",
    ]
    await connection.execute("; ".join(statements))
    progress = (await connection.fetchval(_FILE, of.table), await connection.fetchval(_BLOCKS, of.table))
    await connection.execute("INSERT INTO headrace_copies VALUES ($1, $2, 0, $3)", of.table, *progress)
    return True


async def _copy_blocks(of: Partitioning, first: int, end: int, file: int, connection: Connection) -> bool:
    """Copy rows that no trigger has copied; they are locked, so that each later change finds its copy."""
    if await connection.fetchval(_FILE, of.table) != file:
        return False
    names = ", ".join([column[0] for column in await connection.fetch(_COLUMNS, of.twin)])
    await connection.execute(
        f"INSERT INTO {of.twin} ({names}) SELECT {names} FROM {of.table}"
        f" WHERE ctid >= '({first},0)'::tid AND ctid < '({end},0)'::tid FOR SHARE ON CONFLICT DO NOTHING",
        timeout=TIMEOUT_S,
    )
    await connection.execute("UPDATE headrace_copies SET next_block = $2 WHERE table_name = $1", of.table, end)
    return True


async def _replace_table(of: Partitioning, file: int, connection: Connection) -> bool:
    columns = await connection.fetch(_COLUMNS, of.table)
    copied = await connection.fetch(_COLUMNS, of.twin)
    if [column[:2] for column in columns] != [column[:2] for column in copied]:
        return False
    if await connection.fetchval(_FILE, of.table) != file:
        return False
    statements = [f"DROP TABLE {of.table}", f"ALTER TABLE {of.twin} RENAME TO {of.table}"]
    statements.append(f"ALTER INDEX {of.twin}_pkey RENAME TO {of.table}_pkey")
    statements += [
        f"ALTER INDEX IF EXISTS {name}_twin RENAME TO {name}" for _, name in await connection.fetch(_INDEXES, of.table)
    ]
    statements.append(f"DROP FUNCTION {of.twin}_copy")
    triggers = [row[0] for row in await connection.fetch(_TRIGGERS, of.table)]
    statements += [trigger for trigger in triggers if f"{of.twin}_copy" not in trigger]
    for name, *_, is_identity in columns:
        if is_identity:
            following = f"SELECT nextval(pg_get_serial_sequence('{of.table}', '{name}'))"
            first = await connection.fetchval(following)
            alter = f"ALTER TABLE {of.table} ALTER {name}"
            statements.append(f"{alter} ADD GENERATED ALWAYS AS IDENTITY (START {first})")
    await connection.execute("; ".join(statements), timeout=TIMEOUT_S)
    await connection.execute("DELETE FROM headrace_copies WHERE table_name = $1", of.table)
    return True


async def _drop_twin(of: Partitioning, connection: Connection) -> bool:
    drops = f"DROP TRIGGER {of.twin}_copy ON {of.table}; DROP FUNCTION {of.twin}_copy; DROP TABLE {of.twin}"
    await connection.execute(drops)
    await connection.execute("DELETE FROM headrace_copies WHERE table_name = $1", of.table)
    return True
