"""The PostgreSQL that tests share, and the tests that need one."""

import asyncio
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import asyncpg
import pytest

from benchmarks.postgresql import FAST, Server, give_away, make_data, program, programs, unprivileged
from services.memory.storage.postgres.migrations import list_versions, migrate_tables
from services.memory.storage.postgres.migrations.partitions import partition_tables
from tests.support.in_memory import find_tmpfs

needs_postgres = pytest.mark.skipif(programs() is None, reason="PostgreSQL is not installed on this machine")


def find_place(factory: pytest.TempPathFactory) -> Path:
    """Return the folder shared by all workers of this test run."""
    base = factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "postgresql"


@contextmanager
def sharing_server(place: Path) -> Generator[Server]:
    """Share one server between all processes with the same `place`: the first starts it, the last stops it.

    It is no child of theirs, so that no test kills it; a test that must kill one runs its own server.
    """
    place.mkdir(exist_ok=True)
    address = place / "address"
    with open(place / "users", "a") as users:
        with _locking(place):
            if not address.exists():
                address.write_text(str(_start()))
            fcntl.flock(users, fcntl.LOCK_SH)
        folder = Path(address.read_text())
        try:
            yield Server(folder, FAST)
        finally:
            with _locking(place):
                if _is_last(users.fileno()):
                    address.unlink()
                    _control(folder, "stop", "-m", "immediate")
                    shutil.rmtree(folder, ignore_errors=True)


def _is_last(users: int) -> bool:
    """Return whether no other process holds the lock, which the system releases for dead processes."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _locking(place: Path) -> Generator[None]:
    with open(place / "lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _start() -> Path:
    """Start a server, and return its folder."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-pg-", dir=find_tmpfs()))
    give_away(folder)
    make_data(folder)
    options = ("-c", "listen_addresses=", "-c", f"unix_socket_directories={folder}", *FAST)
    _control(folder, "start", "-l", str(folder / "log"), "-o", " ".join(options))
    return folder


def _control(folder: Path, *arguments: str) -> None:
    command = [*unprivileged(), str(program("pg_ctl")), "-D", str(folder / "data"), "-w", *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/")


FIRST_ROWS = ("headrace_version", "encryption_goal", "api_key_revision", "tenant_agent_revision")
"""Tables that are made with a row, which stays."""


@asynccontextmanager
async def connected(url: str, command_timeout: float | None = None) -> AsyncGenerator[asyncpg.Connection]:
    """Open a connection for the test, separate from the services'."""
    connection = await asyncpg.connect(url, command_timeout=command_timeout)
    try:
        yield connection
    finally:
        await connection.close()


async def empty(url: str) -> None:
    """Delete everything in a database."""
    async with connected(url) as connection:
        rows = await connection.fetch(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')"
            " AND NOT relispartition"
        )
        deletions = [f"DELETE FROM {row[0]}" for row in rows if row[0] not in FIRST_ROWS]
        # No order of tables satisfies all references; a session with the replica role checks none.
        await connection.execute("; ".join(["SET session_replication_role = replica", *deletions]))


async def until_waits(connection: asyncpg.Connection, kind: str) -> None:
    """Wait until some session waits for a lock of this kind."""
    async with asyncio.timeout(100):
        while not await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = $1", kind):
            await asyncio.sleep(0.01)


async def make_tables(connection: asyncpg.Connection, last: int) -> None:
    """Make the tables as they were in version `last`."""
    await connection.execute("CREATE TABLE headrace_version (version bigint NOT NULL)")
    for version in range(1, last + 1):
        await connection.execute(list_versions()[version])
        await connection.execute("INSERT INTO headrace_version VALUES ($1)", version)


async def make_partitioned(url: str) -> None:
    """Make the tables in their partitioned form."""
    async with connected(url) as connection:
        assert await migrate_tables(connection)
        await partition_tables(lambda line: None, connection)
