"""The fixture that starts the services for tests of the orchestrator."""

from functools import partial
from pathlib import Path

import pytest

from tests.support.orchestrator.suite import Serve, serve_suite


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """Return `serve(turn, turn, …, react={…})`: it starts a suite with these model turns and agent fields."""
    return partial(serve_suite, tmp_path)
