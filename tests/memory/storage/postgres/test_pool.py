"""Whatever the driver raises is an error of ours that may be tried again, and quotes nothing that was to be stored."""

from __future__ import annotations

import asyncpg
import pytest

from headrace.errors import Overloaded
from services.memory.storage.postgres.connection.pool import database_errors

BASES = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
ERRORS = sorted(
    (each for each in vars(asyncpg.exceptions).values() if isinstance(each, type) and issubclass(each, BASES)),
    key=lambda each: each.__name__,
)


def test_every_error_of_the_driver_is_ours() -> None:
    assert len(ERRORS) > 200
    for error in (*ERRORS, ConnectionResetError, TimeoutError):
        with pytest.raises(Overloaded) as caught, database_errors():
            raise error("secret")
        assert "secret" not in caught.value.message
        assert caught.value.retriable
