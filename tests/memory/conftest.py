"""A real memory service over a real folder, a real PostgreSQL or the model of one.

PostgreSQL comes from the machine's packages (.ci/run installs it); without it its tests are skipped with a notice.
"""

from __future__ import annotations

import asyncio
import inspect
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.postgresql import Server
from services.memory.encryption.master_keys import open_no_keys
from tests.support.in_memory import find_tmpfs
from tests.support.memory.engines import Files, Kept, ModelledTables, Serve, Tables, open_keys
from tests.support.memory.schedules import Clock
from tests.support.memory.writing import Memory
from tests.support.postgresql import empty, find_place, make_partitioned, needs_postgres, sharing_server
from tests.support.s3_store import Place, needs_s3, running_store
from trials.simulation.postgres.server import Server as ModelServer
from trials.simulation.postgres.tables import Tables as ModelTables

if TYPE_CHECKING:
    from services.memory.storage.s3.settings import S3Settings


@pytest.fixture(scope="module", autouse=True)
def temporary_folders() -> Generator[None]:
    """Put temporary folders on a tmpfs, where syncing costs nothing: some tests write hundreds of times."""
    before, tempfile.tempdir = tempfile.tempdir, find_tmpfs() and str(find_tmpfs())
    yield
    tempfile.tempdir = before


@pytest.fixture
def folder() -> Generator[Path]:
    """The folder of the logs."""
    with tempfile.TemporaryDirectory(prefix="headrace-chats-") as parent:
        yield Path(parent) / "chats"


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """A PostgreSQL shared by all tests that do not kill it."""
    with sharing_server(find_place(tmp_path_factory)) as server:
        yield server


@pytest.fixture(scope="session")
def own_database(postgres: Server) -> str:
    """This process's database."""
    return postgres.new_database()


@pytest.fixture(scope="session")
def own_partitioned_database(postgres: Server) -> str:
    """This process's database whose tables are partitioned."""
    return postgres.new_database()


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
async def database_url(own_database: str) -> str:
    """An empty database."""
    await empty(own_database)
    return own_database


@pytest.fixture
async def partitioned_url(own_partitioned_database: str) -> str:
    """An empty database with partitioned tables."""
    await make_partitioned(own_partitioned_database)
    await empty(own_partitioned_database)
    return own_partitioned_database


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests marked `engines` run with each of them; all others with the embedded one."""
    if "engine" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("engines")
        # Tests that name the folder itself look into it.
        if marker is None or "folder" in inspect.signature(metafunc.function).parameters:
            metafunc.parametrize("engine", ["embedded"])
        else:
            metafunc.parametrize("engine", list_engines(metafunc.definition.path, *marker.args))


def list_engines(path: Path, *checked: str) -> list[Any]:
    """Return the engines for the tests of a file; `make check` runs those over a folder, the model of a database, and
    `checked`.

    Tests of the store, of erasing and of deliveries also run encrypted.
    """
    engines = ["embedded", "modelled", "postgres"]
    if {"storage", "data"} & {path.parent.name, path.parent.parent.name} or path.name == "test_delivery.py":
        engines += ["encrypted", "encrypted postgres", "partitioned postgres"]
    if path.parent.name == "data" or path.name in OF_BLOBS:
        engines += ["s3", "encrypted s3 postgres"]
    if path.name in NOT_MODELLED:
        engines.remove("modelled")
    return [mark_engine(engine, *checked) for engine in engines]


def mark_engine(engine: str, *checked: str) -> Any:
    """Mark an engine with what it needs; unless it is in `checked`, it runs nightly."""
    needs = {"postgres": needs_postgres, "s3": needs_s3}
    marks = [needs[word] for word in engine.split() if word in needs]
    if engine not in ("embedded", "modelled", *checked):
        marks.append(pytest.mark.nightly)
    return pytest.param(engine, marks=marks)


OF_BLOBS = ("test_blobs.py", "test_log_copy.py")
"""Tests of the store that also run with blobs in a bucket."""

NOT_MODELLED = ("test_replicas.py", "test_tampering.py")
"""The model cannot be shared with another process, and nothing else can change its bytes."""


@pytest.fixture
async def modelled(tmp_path: Path) -> AsyncGenerator[ModelServer]:
    """An empty database of the model."""
    with closing(ModelTables(tmp_path / "database")) as tables:
        yield ModelServer(tables, asyncio.get_running_loop())


@pytest.fixture
def kept(engine: str, request: pytest.FixtureRequest) -> Kept:
    """The store under test."""
    if engine == "modelled":
        return ModelledTables(request.getfixturevalue("modelled"))
    words = engine.split()
    opening = open_keys if "encrypted" in words else open_no_keys
    place = request.getfixturevalue("place") if "s3" in words else None
    if "postgres" in words:
        url = request.getfixturevalue("partitioned_url" if "partitioned" in words else "database_url")
        return Tables(url, opening, place)
    return Files(request.getfixturevalue("folder"), opening, place)


@pytest.fixture
def serve(kept: Kept) -> Serve:
    """`async with serve() as memory`; again for a restart over the same chats."""
    return kept.memory


@pytest.fixture
def clock() -> Clock:
    """A clock that the test sets, for the services that take it."""
    return Clock()


@pytest.fixture
async def memory(serve: Serve) -> AsyncGenerator[Memory]:
    async with serve() as memory:
        yield memory
