"""Encrypted stores on both engines."""

from __future__ import annotations

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
