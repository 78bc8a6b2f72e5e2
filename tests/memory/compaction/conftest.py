"""A memory service whose summaries come from a scripted summariser."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.support.memory.summarising import SUMMARY, Summariser, summarising
from tests.support.memory.writing import Memory


@pytest.fixture
def summariser() -> Summariser:
    """Writes SUMMARY, unless a test sets other answers."""
    return Summariser(SUMMARY)


@pytest.fixture
async def memory(folder: Path, summariser: Summariser) -> AsyncGenerator[Memory]:
    async with summarising(folder, summariser) as memory:
        yield memory
