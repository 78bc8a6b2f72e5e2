"""The PostgreSQL that tests share, and the tests that need one."""

from __future__ import annotations

import asyncpg
import pytest

from benchmarks.postgresql import programs

needs_postgres = pytest.mark.skipif(programs() is None, reason="PostgreSQL is not installed on this machine")


async def empty(url: str) -> None:
    """Have nothing in a database."""
    connection = await asyncpg.connect(url)
    try:
        if await connection.fetchval("SELECT to_regclass('chats') IS NOT NULL"):
            tables = (
                "chats",
                "texts",
                "facts",
                "blobs",
                "schedules",
                "spend",
                "webhooks",
                "api_keys",
                "key_calls",
                "key_runs",
                "audit",
                "audit_heads",
                "agent_versions",
                "tenant_agents",
                "data_records",
                "data_keys",
            )
            await connection.execute("; ".join(f"DELETE FROM {table}" for table in tables))
    finally:
        await connection.close()
