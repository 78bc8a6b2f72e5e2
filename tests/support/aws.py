"""AWS's chain of credentials, emptied of the machine's."""

import os
from pathlib import Path

import pytest


def empty_chain(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """Leave nothing that AWS's clients find: no variables, no files under `home`, no instance."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
