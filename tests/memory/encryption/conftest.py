"""Encrypted stores on both engines."""

import base64
import os
from pathlib import Path

import pytest

from tests.support.memory.encrypted_stores import Store
from tests.support.memory.engines import Files, Tables, open_keys
from tests.support.postgresql import needs_postgres


@pytest.fixture(params=["files", pytest.param("postgres", marks=needs_postgres)])
def store(request: pytest.FixtureRequest) -> Store:
    if request.param == "files":
        return Store(Files(request.getfixturevalue("folder"), open_keys), None)
    kept = Tables(request.getfixturevalue("database_url"), open_keys)
    return Store(kept, request.getfixturevalue("postgres"))


@pytest.fixture
def env(store: Store, tmp_path: Path) -> dict[str, str]:
    """The environment of a command over the store."""
    path = tmp_path / "master-keys"
    path.write_text("test:" + base64.b64encode(b"of these tests alone, 32 bytes..").decode() + "\n")
    env = {key: value for key, value in os.environ.items() if not key.startswith("HEADRACE_")}
    env |= {"HEADRACE_MEMORY_ENCRYPTION_KEYS": f"file:{path}"}
    if isinstance(store.kept, Files):
        return env | {"HEADRACE_MEMORY_CHAT_DIR": str(store.kept.folder)}
    return env | {"HEADRACE_DATABASE_URL": store.kept.url}
