"""Folders that only their user can access."""

from pathlib import Path

import pytest

from services.runtime.ending import CannotServe
from services.runtime.files.disk import make_private_folder


def test_a_folder_whose_mode_cannot_be_set_prevents_the_start(tmp_path: Path) -> None:
    make_private_folder(tmp_path / "made" / "below")
    assert [path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")] == [0o700, 0o700]
    with pytest.raises(CannotServe, match=r"/proc/self/task: .*mode 555.*Operation not permitted"):
        make_private_folder(Path("/proc/self/task"))
