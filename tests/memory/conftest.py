"""A real memory service on port 0, over a real folder or a real PostgreSQL; only the disk's sync can be replaced, to
fail on command.

PostgreSQL is of the machine's packages (.ci/run installs it); without it its tests are skipped with a notice.
"""

from __future__ import annotations

import asyncio
import errno
import inspect
import os
import threading
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import asyncpg
import pytest

from benchmarks.postgresql import FAST, Server, programs, running
from services.memory.__main__ import (
    build_audit_service,
    build_data_service,
    build_key_service,
    build_schedule_service,
    build_service,
    build_spend_service,
    build_webhook_service,
)
from services.memory.compaction.summariser import SUMMARY_TIMEOUT_S
from services.memory.config import Config
from services.memory.data.erasures import TTL_MS_MAX
from services.memory.data.refusals import Refusals
from services.memory.encryption.data_keys import DataKeys
from services.memory.encryption.keyring import Keyring
from services.memory.encryption.master_keys import FileMasterKeys
from services.memory.encryption.opening import OpenKeys, open_no_keys
from services.memory.log.encryption.lines import decrypt_log
from services.memory.storage.encrypted.reencryption import running_passes
from services.memory.storage.files.backlog.indexing import RunBacklog, run_steps
from services.memory.storage.files.disk import Disk
from services.memory.storage.files.disk_room import PROBE_S
from services.memory.storage.files.encryption.data_keys import FOLDER, FileDataKeys
from services.memory.storage.files.engine import open_files
from services.memory.storage.files.indexing.index_recovery import START_LOGS_MAX
from services.memory.storage.lru import CACHE_BYTES_MAX
from services.memory.storage.postgres.connection.hosts import DRIVER
from services.memory.storage.postgres.connection.pool import PATIENCE_S, Limits, open_database
from services.memory.storage.postgres.encryption.data_keys import PostgresDataKeys
from services.memory.storage.postgres.engine import open_postgres
from services.memory.storage.postgres.notifications import Notifications
from services.runtime.auth.caller_credentials import build_caller_metadata
from services.runtime.auth.callers import ORCHESTRATOR
from services.runtime.auth.settings import AuthSettings
from services.runtime.clock import now_ms
from services.runtime.files.disk import sync_file_system
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import open_channel
from services.runtime.rpc.server import serving_grpc
from tests.memory.s3.store import Place, needs_s3, running_store
from tests.memory.writing import Memory
from trials.simulation.postgres.driver import DirectWay, connect_to
from trials.simulation.postgres.server import Server as ModelServer
from trials.simulation.postgres.tables import Tables as ModelTables

if TYPE_CHECKING:
    from headrace.v1.llm_pb2_grpc import LlmServiceAsyncStub
    from services.memory.storage.engine import Engine
    from services.memory.storage.s3.settings import S3Settings

Serve = Callable[..., AbstractAsyncContextManager[Memory]]
Kept: TypeAlias = "Files | Tables | ModelledTables"

KNOWN = AuthSettings(internal_token="a-secret-of-the-services-in-these-tests")
"""The orchestrator is known and says for whom it calls: for whoever the test is `acting_as`."""

CONNECTIONS_MAX, STATEMENT_TIMEOUT_S = 4, 10.0

needs_postgres = pytest.mark.skipif(programs() is None, reason="PostgreSQL is not installed on this machine")

MASTER_KEYS = FileMasterKeys({"test": b"of these tests alone, 32 bytes.."})


def open_keys(stored: DataKeys) -> Keyring:
    """The keyring of encrypted stores."""
    return Keyring(MASTER_KEYS, stored)


EACH = ["embedded", pytest.param("postgres", marks=needs_postgres)]

DATA = Path(__file__).parent / "data"
STORAGE = Path(__file__).parent / "storage"
"""Where the tests are that the model of PostgreSQL must pass, too, by which simulations judge the store."""


class HeldSync:
    """fdatasync that can be told to wait, and to fail with "Input/output error" after that."""

    def __init__(self) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()
        self.fails = False

    def hold(self) -> None:
        self.reached.clear()
        self.go_on.clear()

    def __call__(self, fd: int) -> None:
        self.reached.set()
        self.go_on.wait(10)
        if self.fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.fdatasync(fd)


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
    """A service over the logs of a folder, and a place for blobs if there is one."""
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
    """A service over a database; it tells others of what it does, or does not."""
    limits = Limits(CONNECTIONS_MAX, STATEMENT_TIMEOUT_S, patience_s)
    opening: dict[str, Any] = {"cache_bytes_max": cache_bytes_max, "clock": clock, "scrub_rewrites": scrub_rewrites}
    opening["receipt_after_s"] = receipt_after_s
    async with (
        open_postgres(url, limits, **opening, open_keys=open_keys) as store,
        placing_blobs(place, store) as engine,
    ):
        if not tells:
            assert isinstance(engine.peers, Notifications)
            engine.peers.notify_change = _ignore
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
    """Told of changes."""


@asynccontextmanager
async def _serving(
    engine: Engine,
    clock: Callable[[], int],
    *,
    llm: LlmServiceAsyncStub | None = None,
    summary_timeout_s: float = SUMMARY_TIMEOUT_S,
    key_limits: Mapping[str, int] | None = None,
    held_ms: int = TTL_MS_MAX,
    **config: Any,
) -> AsyncGenerator[Memory]:
    settings = ServerSettings(listen="127.0.0.1:0", drain_s=1, auth=KNOWN)
    memory_config, refusals = Config(**config), Refusals(engine)
    served = (
        build_service(engine, memory_config, llm, summary_timeout_s, refusals),
        build_key_service(engine, clock, **(key_limits or {})),
        build_schedule_service(engine, clock),
        build_spend_service(engine, clock),
        build_webhook_service(engine, memory_config),
        build_audit_service(engine),
        build_data_service(engine, refusals, clock, held_ms=held_ms),
    )
    async with (
        refusals.following(),
        serving_grpc(settings, served, check_call=refusals.check_call) as running,
        open_channel(running.addresses[0], build_caller_metadata(KNOWN, ORCHESTRATOR)) as channel,
    ):
        yield Memory.reach(channel)


@dataclass(frozen=True, slots=True)
class Files:
    """Chats in a folder."""

    folder: Path
    open_keys: OpenKeys = open_no_keys
    place: Place | None = None
    """Where blobs are, if not in the folder."""

    def memory(self, **options: Any) -> AbstractAsyncContextManager[Memory]:
        given: dict[str, Any] = {"open_keys": self.open_keys, "place": self.place} | options
        return memory_over(self.folder, **given)

    async def log(self, chat_id: str) -> bytes:
        """The chat's lines as they are kept, decrypted."""
        log = (self.folder / f"{chat_id}.json").read_bytes()
        return decrypt_log(chat_id, log, self.open_keys(FileDataKeys(self.folder / FOLDER)))


@dataclass(frozen=True, slots=True)
class Tables:
    """Chats in a database."""

    url: str
    open_keys: OpenKeys = open_no_keys
    place: Place | None = None

    def memory(self, **options: Any) -> AbstractAsyncContextManager[Memory]:
        given: dict[str, Any] = {"open_keys": self.open_keys, "place": self.place} | options
        return memory_in(self.url, **given)

    async def log(self, chat_id: str) -> bytes:
        query = "SELECT data FROM lines JOIN chats ON chats.id = chat WHERE chat_id = $1 ORDER BY n"
        connection = await asyncpg.connect(self.url)
        try:
            rows = await connection.fetch(query, chat_id)
        finally:
            await connection.close()
        log = b"".join(row[0] + b"\n" for row in rows)
        if self.open_keys is open_no_keys:
            return log
        limits = Limits(CONNECTIONS_MAX, STATEMENT_TIMEOUT_S)
        async with open_database(self.url, limits) as database:
            keys = self.open_keys(PostgresDataKeys(database))
            return await asyncio.to_thread(decrypt_log, chat_id, log, keys)


@dataclass(frozen=True, slots=True)
class ModelledTables:
    """Chats in a model of a database (trials/simulation/postgres)."""

    server: ModelServer

    @asynccontextmanager
    async def memory(self, **options: Any) -> AsyncGenerator[Memory]:
        async def connect(url: str, **given: Any) -> Any:
            return connect_to(self.server, DirectWay(), given)

        DRIVER.set(connect)
        async with memory_in("postgresql://modelled", **options) as memory:
            yield memory

    async def log(self, chat_id: str) -> bytes:
        query = "SELECT data FROM lines JOIN chats ON chats.id = chat WHERE chat_id = ? ORDER BY n"
        rows = self.server.tables.committed.execute(query, (chat_id,))
        return b"".join(row[0] + b"\n" for row in rows)


def is_encrypted(kept: Kept) -> bool:
    return not isinstance(kept, ModelledTables) and kept.open_keys is not open_no_keys


def logs_in(folder: Path) -> list[str]:
    """The files of chats."""
    return sorted(path.name for path in folder.glob("*.json*"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the logs are."""
    return tmp_path / "chats"


@pytest.fixture(scope="session")
def postgres() -> Generator[Server]:
    """A PostgreSQL for all tests that kill none."""
    with running(*FAST) as server:
        yield server


@pytest.fixture(scope="session")
def s3_store() -> Generator[S3Settings]:
    """An S3 server for all tests."""
    with running_store() as settings:
        yield settings


@pytest.fixture
def place(s3_store: S3Settings) -> Place:
    """An empty place for blobs."""
    return Place(s3_store)


@pytest.fixture
async def database_url(postgres: Server) -> str:
    """An empty database."""
    await empty(postgres.url())
    return postgres.url()


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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests marked `engines` run with each of them; all others with the embedded one."""
    if "engine" in metafunc.fixturenames:
        is_each = metafunc.definition.get_closest_marker("engines") and "folder" not in list_parameters(
            metafunc.function
        )
        metafunc.parametrize("engine", list_engines(metafunc.definition.path) if is_each else ["embedded"])


def list_engines(path: Path) -> list[Any]:
    """Return the engines for the tests of a file; those of the store, of erasing and of deliveries encrypted, too."""
    encrypted = ["encrypted", pytest.param("encrypted postgres", marks=needs_postgres)]
    in_bucket = [
        pytest.param("s3", marks=needs_s3),
        pytest.param("encrypted s3 postgres", marks=[needs_s3, needs_postgres]),
    ]
    if path.name in OF_BLOBS:
        encrypted += in_bucket
    if path.name == "test_delivery.py":
        return [*EACH, *encrypted]
    if STORAGE in path.parents:
        return [*EACH, "modelled", *encrypted]
    if DATA in path.parents:
        modelled = ["modelled"] if path.name != "test_encrypted.py" else []  # the model encrypts nothing
        return [*EACH, *modelled, *encrypted, *in_bucket]
    return EACH


OF_BLOBS = ("test_blobs.py", "test_log_copy.py")
"""Those of the store that run with blobs in a bucket, too."""


def list_parameters(function: Callable[..., Any]) -> Collection[str]:
    """Return the fixtures that a test names itself: one that names a folder looks into it."""
    return inspect.signature(function).parameters


@pytest.fixture
async def modelled(tmp_path: Path) -> AsyncGenerator[ModelServer]:
    """An empty database of the model."""
    with closing(ModelTables(tmp_path / "database")) as tables:
        yield ModelServer(tables, asyncio.get_running_loop())


@pytest.fixture
def kept(engine: str, request: pytest.FixtureRequest) -> Kept:
    """Where chats are kept."""
    if engine == "modelled":
        return ModelledTables(request.getfixturevalue("modelled"))
    words = engine.split()
    opening = open_keys if "encrypted" in words else open_no_keys
    place = request.getfixturevalue("place") if "s3" in words else None
    if "postgres" in words:
        return Tables(request.getfixturevalue("database_url"), opening, place)
    return Files(request.getfixturevalue("folder"), opening, place)


@pytest.fixture
def serve(kept: Kept) -> Serve:
    """`async with serve() as memory`; again for a restart over the same chats."""
    return kept.memory


@pytest.fixture
async def memory(serve: Serve) -> AsyncGenerator[Memory]:
    async with serve() as memory:
        yield memory
