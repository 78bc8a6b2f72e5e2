"""Fills a database, or an index of files, with copies of a few chats, like a deployment of some years.

Chat `n` belongs to user `u-{n // 100}` in tenant `t-{n // 100 % tenants}`.
"""

import sqlite3
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg

CHATS_EACH = 100

_FIRST = """
CREATE TABLE copies AS
SELECT n, 't-' || n / {each} % {tenants} AS tenant, 'u-' || n / {each} AS user_name,
    (SELECT array_agg(id ORDER BY id) FROM chats)[1 + n % (SELECT count(*) FROM chats)] AS source
FROM generate_series(0, {chats} - 1) AS n;
CREATE INDEX ON copies (source);

INSERT INTO chats (chat_id, version, name, first_agent_key, last_agent_key, created_at, updated_at, tenant, user_name,
    title, shared_with, participants)
SELECT md5('chat ' || n)::uuid::text, version, name, first_agent_key, last_agent_key, created_at - n * 1000,
    updated_at - n * 1000, copies.tenant, copies.user_name, title, shared_with, participants
FROM copies JOIN chats ON chats.id = source ORDER BY n;
ALTER TABLE copies ADD COLUMN chat bigint;
UPDATE copies SET chat = id FROM chats WHERE chat_id = md5('chat ' || n)::uuid::text;

INSERT INTO runs (chat, run_id, agent_key, started_at, generation, last_seq, is_ended, owner, lease_generation,
    expires_at, state, reason, updated_at, model_calls, input_tokens, output_tokens, cost_nano_usd, credential,
    of_tenant, of_user)
SELECT copies.chat, md5(run_id || n)::uuid::text, agent_key, started_at - n * 1000, generation, last_seq, is_ended,
    owner, lease_generation, expires_at, state, reason, runs.updated_at - n * 1000, model_calls, input_tokens,
    output_tokens, cost_nano_usd, credential, tenant, user_name
FROM copies JOIN runs ON runs.chat = source ORDER BY n;

CREATE FUNCTION copy_line(data bytea, made copies, run_ids text[]) RETURNS bytea LANGUAGE plpgsql AS $$
DECLARE
    line text := convert_from(data, 'UTF8');
    run_id text;
BEGIN
    FOREACH run_id IN ARRAY run_ids LOOP
        line := replace(line, run_id, md5(run_id || made.n)::uuid::text);
    END LOOP;
    line := regexp_replace(line, '"chatId":"[^"]*"', '"chatId":"' || md5('chat ' || made.n)::uuid || '"');
    line := regexp_replace(line, '"_tenant":"[^"]*","_user":"[^"]*"',
        '"_tenant":"' || made.tenant || '","_user":"' || made.user_name || '"');
    -- Lines of earlier programs have no checksum.
    RETURN convert_to(regexp_replace(line, ',"_crc":"[0-9a-f]*"', ''), 'UTF8');
END $$;
INSERT INTO lines SELECT copies.chat, lines.n, copy_line(data, copies, run_ids)
FROM copies JOIN lines ON lines.chat = source
    JOIN (SELECT chat, array_agg(run_id) AS run_ids FROM runs GROUP BY chat) AS ids ON ids.chat = source
ORDER BY copies.n, lines.n;

INSERT INTO texts (chat, run_id, kind, text, folded, tenant, user_name)
SELECT copies.chat, md5(run_id || n)::uuid::text, kind, text || ' the ' || n || repeat(' and more', 30),
    folded || ' the ' || n || repeat(' and more', 30), copies.tenant, copies.user_name
FROM copies JOIN texts ON texts.chat = source ORDER BY n;

INSERT INTO gates SELECT copies.chat, md5(run_id || n)::uuid::text, gate_id, md5('chat ' || n)::uuid::text,
    copies.tenant, copies.user_name, agent_key, kind, tool_id, tool_name, risk, reason, viewport_key, opened_at,
    expires_at, state, closed_at, answered_by, credential, E'\n' || 'user:' || copies.user_name || E'\n',
    not_requester, votes_needed, voters, claimed_by, claimed_until
FROM copies JOIN gates ON gates.chat = source;

INSERT INTO gate_grants SELECT copies.chat, md5('chat ' || n)::uuid::text, grant_id, md5(run_id || n)::uuid::text,
    copies.tenant, copies.user_name, made_by, made_at - n, expires_at, is_over, event
FROM copies JOIN gate_grants ON gate_grants.chat = source;

INSERT INTO spend SELECT copies.chat, day - n % 30, copies.tenant, copies.user_name, agent_key, model, credential,
    input_tokens, output_tokens, cached_tokens, model_calls, cost_nano_usd
FROM copies JOIN spend ON spend.chat = source;

INSERT INTO deliveries SELECT webhook_id, md5(event_id || n)::uuid::text, copies.tenant, type, subject,
    md5(run_id || n)::uuid::text, gate_id, agent_key, occurred_at - n, payload, 'delivered', place, began_at, next_at,
    1, occurred_at, 200, ''
FROM copies, (SELECT * FROM deliveries WHERE run_id <> '' LIMIT 1) AS delivery
WHERE n % 2 = 0 AND copies.tenant = delivery.tenant;

INSERT INTO facts (fact_id, key, request_id, updated_at, text, tenant, user_name)
SELECT md5('fact ' || n)::uuid::text, n, '', 1, 'Likes mill ' || n, tenant, user_name FROM copies WHERE n % 20 = 0;

INSERT INTO schedules
SELECT md5('schedule ' || n)::uuid::text, copies.tenant, copies.user_name, created_at + n, 0, version, data
FROM copies, (SELECT * FROM schedules LIMIT 1) AS schedule WHERE n % 50 = 0;

DROP FUNCTION copy_line;
DROP TABLE copies;
"""


async def fill(connection: asyncpg.Connection, chats: int, tenants: int) -> None:
    """Add `chats` copies of the database's chats, in turn, and what belongs to them."""
    statements = _FIRST.format(each=CHATS_EACH, tenants=tenants, chats=chats)
    await connection.execute("SET maintenance_work_mem = '256MB'; SET synchronous_commit = off")
    await connection.execute(statements)
    await connection.execute("VACUUM ANALYZE")


_INDEXED = ("chats", "runs", "texts", "gates", "gate_grants", "spend")

_TIMES = {"created_at", "updated_at", "started_at", "opened_at", "made_at"}


def fill_index(path: Path, chats: int, tenants: int) -> None:
    """Add `chats` copies of an index's chats, in turn, while a service uses the file."""
    with closing(sqlite3.connect(path)) as database, database:
        database.row_factory = sqlite3.Row
        sources = [row[0] for row in database.execute("SELECT chat_id FROM chats ORDER BY created_at")]
        for table in _INDEXED:
            found = [dict(row) for row in database.execute(f"SELECT * FROM {table}")]
            copies = [
                _copy_row(row, n, tenants)
                for n in range(chats)
                for row in found
                if row["chat_id"] == sources[n % len(sources)]
            ]
            if copies:
                names = ", ".join(copies[0])
                marks = ", ".join(f":{name}" for name in copies[0])
                database.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks})", copies)


def _copy_row(row: dict[str, Any], n: int, tenants: int) -> dict[str, Any]:
    tenant, user = f"t-{n // CHATS_EACH % tenants}", f"u-{n // CHATS_EACH}"
    named = dict.fromkeys(("tenant", "of_tenant"), tenant) | dict.fromkeys(("user", "of_user", "user_name"), user)
    named |= {"requester": user, "answerers": f"\nuser:{user}\n"}
    copy: dict[str, Any] = {name: named.get(name, value) for name, value in row.items() if name != "id"}
    for name in {"chat_id", "run_id"} & copy.keys():
        copy[name] = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{row[name]} {n}"))
    return copy | {name: copy[name] - n * 1000 for name in _TIMES & copy.keys()}
