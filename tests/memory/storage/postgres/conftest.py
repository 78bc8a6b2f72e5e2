"""All of these need PostgreSQL on this machine."""

from pathlib import Path

import pytest

from tests.support.postgresql import needs_postgres

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(needs_postgres)
