"""A store with webhooks, on either engine, and a receiver."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

import pytest

from tests.support.memory.engines import open_engine
from tests.support.memory.webhooks import Open
from tests.support.webhook_receiver import Receiver, receiving

if TYPE_CHECKING:
    from services.memory.storage.engine import Engine
    from tests.support.memory.engines import Kept


@pytest.fixture
def open_store(kept: Kept) -> Open:
    """`async with open_store() as engine`; again for a restart, or at the same time for another replica of a
    database."""
    return lambda: open_engine(kept)


@pytest.fixture
async def engine_in_use(open_store: Open) -> AsyncGenerator[Engine]:
    async with open_store() as engine:
        yield engine


@pytest.fixture
async def receiver() -> AsyncGenerator[Receiver]:
    async with receiving() as receiver:
        yield receiver
