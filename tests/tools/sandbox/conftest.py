from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Time passes as it does: what is left of a command ends behind its supervisor, which no loop sees."""
    return {"asyncio": asyncio.new_event_loop}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workspace, in a folder of its own."""
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"
