"""A database that is away: said twice, however many calls wait for it, and shown while it lasts."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from benchmarks.postgresql import Server
from services.memory.storage.postgres.connection.pool import Limits
from services.memory.storage.postgres.engine import open_postgres
from tests.support.memory.wire import wire


def up() -> float | None:
    return REGISTRY.get_sample_value("headrace_database_up")


async def test_an_outage_is_shown_while_it_lasts_and_said_once(postgres: Server) -> None:
    with tempfile.TemporaryDirectory(prefix="headrace-") as there, capture_logs() as said:
        url = f"postgresql://headrace@/postgres?host={there}"
        async with (
            asyncio.timeout(300),
            wire(Path(there), postgres.folder) as cable,
            open_postgres(url, Limits(4, 5)) as engine,
        ):
            assert (engine.is_up(), up()) == (True, 1)
            cable.cut()
            waiting = [asyncio.create_task(engine.index.list_chats()) for _ in range(8)]
            done, _ = await asyncio.wait(waiting, timeout=1.0)
            assert not done
            assert (engine.is_up(), up()) == (False, 0)
            cable.mend()
            await asyncio.gather(*waiting)
            assert (engine.is_up(), up()) == (True, 1)
    events = [line["event"] for line in said]
    assert (events.count("database away"), events.count("database back")) == (1, 1)
