"""Our transport runs on uvloop in production, and on asyncio for users of our client; tests that depend on how a loop
closes sockets run on both.
"""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

BOTH = (
    "test_robust_slow",
    "test_robust_floods",
    "test_tls",
    "test_keepalive",
    "test_drain",
    "test_streams",
    "test_interop_channels",
)
UVLOOP = (
    "test_robust_frames",
    "test_robust_client",
    "test_interop_contract",
    "test_calls",
    "test_calls_cancelled",
    "test_calls_requests",
    "test_streams_cut",
    "test_streams_slow",
)


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    loops: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {}
    if item.path.stem not in UVLOOP:
        loops["asyncio"] = asyncio.new_event_loop
    if item.path.stem in BOTH + UVLOOP:
        loops["uvloop"] = uvloop.new_event_loop
    return loops


@pytest.fixture(autouse=True)
def always_quiet(request: pytest.FixtureRequest) -> None:
    """No test may leave an error in the log, whatever arrives over a connection; grpcio's own logs do not count."""
    if "grpcio" not in request.node.name:
        request.getfixturevalue("quiet")
