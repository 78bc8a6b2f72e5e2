"""A real memory service over a real folder, a real PostgreSQL or the model of one.

PostgreSQL is of the machine's packages (.ci/run installs it); without it its tests are skipped with a notice.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Collection, Generator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.postgresql import FAST, Server, running
from services.memory.encryption.opening import open_no_keys
from tests.support.memory.engines import Files, Kept, ModelledTables, Serve, Tables, open_keys
from tests.support.memory.writing import Memory
from tests.support.postgresql import empty, needs_postgres
from tests.support.s3_store import Place, needs_s3, running_store
from trials.simulation.postgres.server import Server as ModelServer
from trials.simulation.postgres.tables import Tables as ModelTables

if TYPE_CHECKING:
    from services.memory.storage.s3.settings import S3Settings

EACH = ["embedded", pytest.param("postgres", marks=needs_postgres)]

DATA = Path(__file__).parent / "data"
STORAGE = Path(__file__).parent / "storage"
"""Where the tests are that the model of PostgreSQL must pass, too, by which simulations judge the store."""


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
