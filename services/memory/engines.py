"""The engine that the settings ask for: a folder of this process's own, or a database that it shares."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING

from services.memory.storage.files import store
from services.memory.storage.files.disk import Disk

if TYPE_CHECKING:
    from services.memory.config import Config
    from services.memory.storage.engine import Engine


@asynccontextmanager
async def engine(config: Config) -> AsyncGenerator[Engine]:
    """The chats of `config`; leaving the block commits what waits.

    Raises:
        OSError: They cannot be had.
    """
    if config.database_url:
        # Imported when it is wanted: one of two services has no use for the driver.
        from services.memory.storage.postgres.connection.pool import Limits
        from services.memory.storage.postgres.store import opened

        limits = Limits(config.database_connections_max, config.database_statement_timeout_s)
        async with opened(config.database_url, limits) as chats:
            yield chats
        return
    with closing(await asyncio.to_thread(Disk, config.logs_dir)) as disk:
        async with store.opened(disk) as chats:
            yield chats
