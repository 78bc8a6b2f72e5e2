from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a workspace in a separate folder."""
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"
