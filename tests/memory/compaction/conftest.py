"""A service whose summaries are written by a script."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.support.memory.summarising import SUMMARY, Summariser, summarising
from tests.support.memory.writing import Memory


@pytest.fixture
def summariser() -> Summariser:
    """Writes SUMMARY, unless a test has it answer something else."""
    return Summariser(SUMMARY)


@pytest.fixture
async def memory(folder: Path, summariser: Summariser) -> AsyncGenerator[Memory]:
    async with summarising(folder, summariser) as memory:
        yield memory
