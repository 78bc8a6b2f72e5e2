from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING

from services.memory.storage.encrypted.reencryption import running_passes
from services.memory.storage.files.disk import Disk
from services.memory.storage.files.engine import open_files
from services.runtime.files.disk import make_private_folder

if TYPE_CHECKING:
    from services.memory.config import Config
    from services.memory.storage.engine import Engine


@asynccontextmanager
async def open_engine(config: Config) -> AsyncGenerator[Engine]:
    """Open the chats of `config`; leaving the block commits pending writes.

    Raises:
        OSError: The folder or database is unusable, or the bucket refuses access.
    """
    async with _open_store(config) as store, _placing_blobs(config, store) as engine, running_passes(engine.rewriting):
        yield engine


@asynccontextmanager
async def _placing_blobs(config: Config, store: Engine) -> AsyncGenerator[Engine]:
    if not config.blobs:
        yield store
        return
    # Imported only here: most services do not need the HTTP client.
    from services.memory.storage.s3.engine import keeping_blobs_in

    async with keeping_blobs_in(config.blobs, config.s3, store) as engine:
        yield engine


@asynccontextmanager
async def _open_store(config: Config) -> AsyncGenerator[Engine]:
    open_keys = config.make_open_keys()
    if config.database_url:
        # Imported only here: a service over a folder does not need the driver.
        from services.memory.storage.postgres.connection.pool import Limits
        from services.memory.storage.postgres.engine import open_postgres

        limits = Limits(config.database_connections_max, config.database_statement_timeout_s)
        async with open_postgres(
            config.database_url,
            limits,
            audit_tenant=config.audit_tenant,
            scrub_rewrites=config.erase_rewrites,
            receipt_after_s=config.erase_receipt_after_s,
            open_keys=open_keys,
        ) as engine:
            yield engine
        return
    if config.data_dir in config.logs_dir.parents:
        await asyncio.to_thread(make_private_folder, config.data_dir, is_volume=True)
    with closing(await asyncio.to_thread(Disk, config.logs_dir)) as disk:
        async with open_files(disk, audit_tenant=config.audit_tenant, open_keys=open_keys) as engine:
            yield engine
