"""AWS's credential chain without the machine's own credentials."""

import os
from pathlib import Path

import pytest


def empty_chain(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """Remove everything in which AWS's clients find credentials: variables, files under `home`, instance metadata."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
