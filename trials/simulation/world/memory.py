"""A world's memory service, with files or a database as its store."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.v1 import llm_pb2_grpc
from services.memory.__main__ import (
    build_audit_service,
    build_data_service,
    build_key_service,
    build_schedule_service,
    build_service,
    build_spend_service,
    build_webhook_service,
)
from services.memory.config import Config
from services.memory.data.erasures import Refusals
from services.memory.storage.files.disk import Disk
from services.memory.storage.files.engine import open_files
from services.memory.storage.postgres.connection.hosts import DRIVER
from services.memory.storage.postgres.connection.pool import Limits
from services.memory.storage.postgres.engine import open_postgres
from services.memory.webhooks.deliverer import delivering
from services.runtime.auth import callers
from services.runtime.rpc.channels import build_caller_metadata, open_channel
from services.runtime.rpc.server import serving_grpc
from trials.simulation.planted.bugs import DATA_BUGS, MEMORY_BUGS, SCHEDULE_BUGS
from trials.simulation.world.processes import PROCESS
from trials.simulation.world.storage import Storage
from trials.simulation.world.system_calls import COMMITTED, SYNC

if TYPE_CHECKING:
    from services.memory.storage.engine import Engine
    from services.memory.webhooks.deliverer import Send
    from services.runtime.auth.settings import AuthSettings
    from trials.simulation.postgres.database import Database

DATABASE_URL, LIMITS = "postgresql://postgres/headrace", Limits(4, 5.0)
"""Address of the modelled database, which ignores it; limits: connections, and seconds of one statement."""


async def run_memory(
    config: Config, gateway_address: str, auth: AuthSettings, send: Send, store: Database | Storage, bug: str
) -> None:
    """Serve until the process is stopped; `send` delivers to webhooks, and `bug` names a planted bug."""
    wrap = MEMORY_BUGS.get(bug, lambda real: real)
    async with (
        open_channel(gateway_address, build_caller_metadata(auth, callers.MEMORY)) as channel,
        _open_engine(store) as engine,
        delivering(engine.records.webhooks, send),
        Refusals(engine).following() as refusals,
        AsyncExitStack() as stack,
    ):
        real = build_service(engine, config, llm_pb2_grpc.LlmServiceStub(channel), refusals=refusals)
        service = replace(real, servicer=wrap(real.servicer))
        schedules = build_schedule_service(engine)
        wrap_schedules = SCHEDULE_BUGS.get(bug, lambda real: real)
        served = [service, replace(schedules, servicer=wrap_schedules(schedules.servicer))]
        served += [build_spend_service(engine), build_webhook_service(engine, config), build_audit_service(engine)]
        data = build_data_service(engine, refusals)
        wrap_data = DATA_BUGS.get(bug, lambda real: real)
        served += [build_key_service(engine), replace(data, servicer=wrap_data(data.servicer))]
        serving = serving_grpc(
            config.server,
            served,
            is_usable=engine.is_up,
            drain=engine.gate_watch.close,
            check_call=None if bug == "taken while erased" else refusals.check_call,
        )
        await stack.enter_async_context(serving)
        await PROCESS.get().wait_for_stop()


@asynccontextmanager
async def _open_engine(store: Database | Storage) -> AsyncGenerator[Engine]:
    """Open the world's store for the running process."""
    if not isinstance(store, Storage):
        DRIVER.set(store.connect)
        async with open_postgres(DATABASE_URL, LIMITS) as engine:
            yield engine
        return
    SYNC.set(store.sync)
    COMMITTED.set(store.note_commit)
    logs_dir = Config(data_dir=store.open_next()).logs_dir
    with closing(Disk(logs_dir, sync=store.sync, sync_system=store.sync_all)) as disk:
        async with open_files(disk) as engine:
            yield engine
