"""For all tests, before anything else is imported."""

import os

# The command line starts processes by fork; gRPC's own fork handlers, loaded by other tests, would abort the child.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

import pytest
from hypothesis import settings

# No test is timed: on a busy machine a deadline says nothing.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    """How hard the OpenAPI document, and each RPC, is tried; `make fuzz` tries harder."""
    parser.addoption("--http-examples", type=int, default=2)
    parser.addoption("--bad-requests", type=int, default=200)
