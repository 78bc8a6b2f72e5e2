"""The stores under test: a folder, a database, or a model of one."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from services.memory.encryption.data_keys import DataKeys
from services.memory.encryption.keyring import Keyring
from services.memory.encryption.master_keys import FileMasterKeys, OpenKeys, open_no_keys
from services.memory.log.sealing import decrypt_log
from services.memory.storage.engine import Engine
from services.memory.storage.files.data_keys import FOLDER, FileDataKeys
from services.memory.storage.files.disk import Disk
from services.memory.storage.files.engine import open_files
from services.memory.storage.files.indexing.index_recovery import INDEX_NAME
from services.memory.storage.postgres.connection.hosts import DRIVER
from services.memory.storage.postgres.connection.pool import Limits, open_database
from services.memory.storage.postgres.encryption import PostgresDataKeys
from services.memory.storage.postgres.engine import open_postgres
from tests.support.memory.serving import CONNECTIONS_MAX, STATEMENT_TIMEOUT_S, memory_in, memory_over, placing_blobs
from tests.support.memory.writing import Memory
from tests.support.postgresql import connected
from tests.support.s3_store import Place
from trials.simulation.postgres.driver import DirectWay, connect_to
from trials.simulation.postgres.server import Server as ModelServer

Serve = Callable[..., AbstractAsyncContextManager[Memory]]
Kept: TypeAlias = "Files | Tables | ModelledTables"

MASTER_KEYS = FileMasterKeys({"test": b"of these tests alone, 32 bytes.."})


def open_keys(stored: DataKeys) -> Keyring:
    """Return the keyring of encrypted stores."""
    return Keyring(MASTER_KEYS, stored)


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
        """Return the chat's lines as they are stored, decrypted."""
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
        async with connected(self.url) as connection:
            rows = await connection.fetch(query, chat_id)
        log = b"".join(row[0] + b"\n" for row in rows)
        if self.open_keys is open_no_keys:
            return log
        limits = Limits(CONNECTIONS_MAX, STATEMENT_TIMEOUT_S)
        async with open_database(self.url, limits) as database:
            keys = self.open_keys(PostgresDataKeys(database))
            return await asyncio.to_thread(decrypt_log, chat_id, log, keys)


def drive(server: ModelServer, way: DirectWay | None = None) -> None:
    """Make connections that are opened from now on lead to the model of a database."""

    async def connect(url: str, **given: Any) -> Any:
        return connect_to(server, way or DirectWay(), given)

    DRIVER.set(connect)


@dataclass(frozen=True, slots=True)
class ModelledTables:
    """Chats in a model of a database (trials/simulation/postgres)."""

    server: ModelServer

    @asynccontextmanager
    async def memory(self, **options: Any) -> AsyncGenerator[Memory]:
        self.install_driver()
        async with memory_in("postgresql://modelled", **options) as memory:
            yield memory

    def install_driver(self) -> None:
        """Make stores that are opened from now on use the model."""
        drive(self.server)

    async def log(self, chat_id: str) -> bytes:
        query = "SELECT data FROM lines JOIN chats ON chats.id = chat WHERE chat_id = ? ORDER BY n"
        rows = self.server.tables.committed.execute(query, (chat_id,))
        return b"".join(row[0] + b"\n" for row in rows)


Stored: TypeAlias = Files | Tables


@asynccontextmanager
async def open_engine(kept: Kept) -> AsyncGenerator[Engine]:
    """Open the store itself, without a service; again for a restart, or at the same time for another replica of a
    database.
    """
    limits = Limits(CONNECTIONS_MAX, STATEMENT_TIMEOUT_S)
    if isinstance(kept, ModelledTables):
        kept.install_driver()
        async with open_postgres("postgresql://modelled", limits) as engine:
            yield engine
        return
    if isinstance(kept, Tables):
        async with (
            open_postgres(kept.url, limits, open_keys=kept.open_keys) as store,
            placing_blobs(kept.place, store) as engine,
        ):
            yield engine
        return
    with closing(Disk(kept.folder)) as disk:
        async with open_files(disk, open_keys=kept.open_keys) as store, placing_blobs(kept.place, store) as engine:
            yield engine


def is_encrypted(kept: Kept) -> bool:
    return not isinstance(kept, ModelledTables) and kept.open_keys is not open_no_keys


def lose_index(folder: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        (folder / f"{INDEX_NAME}{suffix}").unlink(missing_ok=True)


def logs_in(folder: Path) -> list[str]:
    """Return the names of the chats' files."""
    return sorted(path.name for path in folder.glob("*.json*"))
