"""Blobs in a bucket, next to chats in a folder or a database."""

import pytest

from tests.support.memory.engines import Files, Stored, Tables
from tests.support.postgresql import needs_postgres
from tests.support.s3_store import Place


@pytest.fixture(params=["files", pytest.param("postgres", marks=needs_postgres)])
def kept(request: pytest.FixtureRequest, place: Place) -> Stored:
    if request.param == "files":
        return Files(request.getfixturevalue("folder"), place=place)
    return Tables(request.getfixturevalue("database_url"), place=place)
