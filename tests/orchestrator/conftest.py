"""The suite that tests of the orchestrator talk to."""

from functools import partial
from pathlib import Path

import pytest

from tests.support.orchestrator.suite import Serve, serve_suite


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """`serve(turn, turn, …, react={…})`: a suite whose model plays these turns; fields change the agents."""
    return partial(serve_suite, tmp_path)
