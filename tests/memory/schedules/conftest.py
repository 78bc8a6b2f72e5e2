"""A memory service whose clock the test sets."""

from collections.abc import AsyncGenerator

import pytest

from tests.support.memory.engines import Serve
from tests.support.memory.schedules import Clock
from tests.support.memory.writing import Memory


@pytest.fixture
async def memory(serve: Serve, clock: Clock) -> AsyncGenerator[Memory]:
    async with serve(clock=clock) as memory:
        yield memory
