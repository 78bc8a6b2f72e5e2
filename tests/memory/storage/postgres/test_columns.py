"""What users write is kept out of the planner's statistics, whose samples an erasure could not reach."""

from services.memory.storage.records.stores import KINDS
from tests.support.memory.serving import memory_in
from tests.support.postgresql import connected, needs_postgres

WORDS = {
    *((kind.table, "data") for kind in KINDS),
    *(("lines", "data"), ("blobs", "data"), ("audit", "line"), ("agent_versions", "definition")),
    *(("texts", "text"), ("texts", "folded"), ("facts", "text"), ("facts", "topic"), ("facts", "vector")),
    *(("chats", "name"), ("chats", "title"), ("gates", "reason"), ("gate_grants", "event")),
    *(("deliveries", "payload"), ("deliveries", "failure")),
}

# fmt: off
NAMES = [
    "agent_key", "agents", "answered_by", "answerers", "blob_id", "chat_id", "claimed_by", "credential", "event_id",
    "fact_id", "first_agent_key", "gate_id", "goal", "grant_id", "hash", "key", "key_id", "kind", "last_agent_key",
    "made_by", "mime_type", "model", "of_tenant", "of_user", "owner", "participants", "reason", "record_id",
    "replaced_by", "request_id", "requester", "risk", "run_id", "schedule_id", "scope", "shared_with", "state",
    "subject", "tenant", "tool_id", "tool_name", "type", "types", "user_name", "vector_model", "viewport_key",
    "voters", "webhook_id", "wrapped",
]
# fmt: on
"""Columns of any table that hold ids, names of things, and fixed words."""

_COLUMNS = """
SELECT relname, attname, attstattarget = 0 FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND attnum > 0 AND NOT attisdropped
    AND atttypid IN ('text'::regtype, 'bytea'::regtype, 'jsonb'::regtype)
"""


@needs_postgres
async def test_each_column_with_user_text_has_no_samples(database_url: str) -> None:
    async with memory_in(database_url), connected(database_url) as connection:
        columns = {(table, name): is_kept_out for table, name, is_kept_out in await connection.fetch(_COLUMNS)}
    assert {column for column, is_kept_out in columns.items() if is_kept_out} == WORDS
    assert sorted({name for _, name in columns.keys() - WORDS}) == NAMES
