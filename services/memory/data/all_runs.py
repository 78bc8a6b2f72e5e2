"""All runs that a query is about, over its pages."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.memory.storage.engine import Engine
    from services.memory.storage.run_query import RunEntry, RunQuery


async def read_runs(engine: Engine, query: RunQuery) -> AsyncGenerator[RunEntry]:
    """Yield the runs page by page, the newest first."""
    while True:
        runs, token = await engine.index.list_runs(query)
        for run in runs:
            yield run
        if not token:
            return
        query = replace(query, after=(runs[-1].began_at, runs[-1].run_id))
