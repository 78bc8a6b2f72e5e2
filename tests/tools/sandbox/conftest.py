from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workspace, in a folder of its own."""
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"
