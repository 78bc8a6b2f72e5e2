"""A real memory service on port 0, over a real folder or a real PostgreSQL; only the disk's sync can be replaced, to
fail on command.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from services.memory.data.erasures import TTL_MS_MAX, Refusals
from services.memory.encryption.master_keys import OpenKeys, open_no_keys
from services.memory.storage.encrypted.reencryption import running_passes
from services.memory.storage.files.backlog import RunBacklog, run_steps
from services.memory.storage.files.disk import Disk
from services.memory.storage.files.disk_room import PROBE_S
from services.memory.storage.files.engine import open_files
from services.memory.storage.files.indexing.index_recovery import START_LOGS_MAX
from services.memory.storage.lru import CACHE_BYTES_MAX
from services.memory.storage.postgres.connection.pool import PATIENCE_S, Limits
from services.memory.storage.postgres.engine import open_postgres
from services.memory.storage.postgres.notifications import Notifications
from services.runtime.auth.callers import ORCHESTRATOR
from services.runtime.auth.settings import AuthSettings
from services.runtime.clock import now_ms
from services.runtime.files.disk import sync_file_system
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import build_caller_metadata, open_channel
from services.runtime.rpc.server import serving_grpc
from tests.support.memory.writing import Memory
from tests.support.s3_store import Place

if TYPE_CHECKING:
    from headrace.v1.llm_pb2_grpc import LlmServiceAsyncStub
    from services.memory.storage.engine import Engine

KNOWN = AuthSettings(internal_token="a-secret-of-the-services-in-these-tests")
"""The orchestrator has the token, and names the user it calls for: the one the test is `acting_as`."""

SERVER = ServerSettings(listen="127.0.0.1:0", drain_s=1, auth=KNOWN)

CONNECTIONS_MAX, STATEMENT_TIMEOUT_S = 4, 10.0


@asynccontextmanager
async def memory_over(
    folder: Path,
    *,
    sync: Callable[[int], None] = os.fdatasync,
    sync_system: Callable[[int], None] = sync_file_system,
    cache_bytes_max: int = CACHE_BYTES_MAX,
    clock: Callable[[], int] = now_ms,
    probe_s: float = PROBE_S,
    start_logs_max: int = START_LOGS_MAX,
    run_backlog: RunBacklog = run_steps,
    open_keys: OpenKeys = open_no_keys,
    place: Place | None = None,
    **options: Any,
) -> AsyncGenerator[Memory]:
    """Serve the logs of a folder, with a place for blobs if there is one."""
    opening: dict[str, Any] = {"cache_bytes_max": cache_bytes_max, "clock": clock, "probe_s": probe_s}
    opening |= {"start_logs_max": start_logs_max, "run_backlog": run_backlog, "open_keys": open_keys}
    with closing(Disk(folder, sync=sync, sync_system=sync_system)) as disk:
        async with (
            open_files(disk, **opening) as store,
            placing_blobs(place, store) as engine,
            running_passes(engine.rewriting),
            _serving(engine, clock, **options) as memory,
        ):
            yield memory


@asynccontextmanager
async def memory_in(
    url: str,
    *,
    cache_bytes_max: int = CACHE_BYTES_MAX,
    clock: Callable[[], int] = now_ms,
    patience_s: float = PATIENCE_S,
    tells: bool = True,
    scrub_rewrites: bool = False,
    receipt_after_s: float = 0.0,
    open_keys: OpenKeys = open_no_keys,
    place: Place | None = None,
    **options: Any,
) -> AsyncGenerator[Memory]:
    """Serve a database; the service notifies others of changes unless `tells` is false."""
    limits = Limits(CONNECTIONS_MAX, STATEMENT_TIMEOUT_S, patience_s)
    opening: dict[str, Any] = {"cache_bytes_max": cache_bytes_max, "clock": clock, "scrub_rewrites": scrub_rewrites}
    opening["receipt_after_s"] = receipt_after_s
    async with (
        open_postgres(url, limits, **opening, open_keys=open_keys) as store,
        placing_blobs(place, store) as engine,
    ):
        if not tells:
            assert isinstance(engine.peers, Notifications)
            engine.peers.notify_readers = _ignore
        async with running_passes(engine.rewriting), _serving(engine, clock, **options) as memory:
            yield memory


@asynccontextmanager
async def placing_blobs(place: Place | None, store: Engine) -> AsyncGenerator[Engine]:
    if place is None:
        yield store
        return
    async with place.keeping_blobs(store) as engine:
        yield engine


def _ignore(chat_id: str) -> None:
    """Ignore a change."""


@asynccontextmanager
async def _serving(
    engine: Engine,
    clock: Callable[[], int],
    *,
    llm: LlmServiceAsyncStub | None = None,
    key_limits: Mapping[str, Any] | None = None,
    held_ms: int = TTL_MS_MAX,
    auth: AuthSettings = KNOWN,
    server: ServerSettings = SERVER,
    **config: Any,
) -> AsyncGenerator[Memory]:
    memory_config, refusals = Config(**config), Refusals(engine)
    served = (
        build_service(engine, memory_config, llm, refusals),
        build_key_service(engine, clock, auth, **(key_limits or {})),
        build_schedule_service(engine, clock, auth=auth),
        build_spend_service(engine, clock),
        build_webhook_service(engine, memory_config),
        build_audit_service(engine),
        build_data_service(engine, refusals, clock, held_ms=held_ms),
    )
    async with (
        refusals.following(),
        serving_grpc(server, served, check_call=refusals.check_call) as running,
        open_channel(running.addresses[0], build_caller_metadata(server.auth, ORCHESTRATOR)) as channel,
    ):
        yield Memory.reach(channel)
