"""For all tests, before anything else is imported."""

import asyncio
import gc
import os
import signal
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from types import FrameType

# The command line starts processes by fork; gRPC's own fork handlers, loaded by other tests, would abort the child.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

# Under nohup children would ignore hang-ups too, as they should; a handler is not inherited, and keeps the suite alive.
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:

    def ignore_hangup(_signum: int, _frame: FrameType | None) -> None:
        pass

    signal.signal(signal.SIGHUP, ignore_hangup)

# A shell has its background jobs ignore Ctrl-C, and so their children, which tests end by it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest
import structlog
from hypothesis import settings

from services.runtime.process.transport import VARIABLE
from tests.support.authority import Authority
from tests.support.jumping_loop import JumpingLoop, install_clock

# No test is timed: on a busy machine a deadline says nothing.
settings.register_profile("check", deadline=None, max_examples=20)
settings.register_profile("nightly", deadline=None, max_examples=200)
settings.load_profile("check")

# Tests log 100 lines each, and few are read: the console's columns and colours would be a twentieth of all their time.
lines = [
    structlog.processors.format_exc_info,
    structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"]),
]
structlog.configure(processors=[*structlog.get_config()["processors"][:-1], *lines])

install_clock()

TESTS = Path(__file__).parent
JUMPING = ("facade", "llm_gateway", "memory", "orchestrator", "simulator", "tools")
"""Folders whose tests run on a loop whose time jumps, over the transport `local`, but those marked `real_time`."""

SANDBOX = TESTS / "tools" / "sandbox"
"""What a command leaves behind ends after its supervisor, which no loop sees: its tests run in real time."""


def is_jumping(item: pytest.Item) -> bool:
    is_real = item.get_closest_marker("real_time") is not None or item.path.is_relative_to(SANDBOX)
    return item.path.relative_to(TESTS).parts[0] in JUMPING and not is_real


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": JumpingLoop if is_jumping(item) else asyncio.new_event_loop}


@pytest.fixture(autouse=True)
def transport(request: pytest.FixtureRequest) -> Generator[None]:
    """Connect the services of a test with a jumping clock in memory, unless the run sets the transport of all tests."""
    if VARIABLE in os.environ or not is_jumping(request.node):
        yield
        return
    os.environ[VARIABLE] = "local"
    yield
    del os.environ[VARIABLE]


@pytest.fixture
def h2(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of features that grpcio lacks: certificates, replicas at one address, and peer names in errors."""
    monkeypatch.setenv(VARIABLE, "h2")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude the objects that exist before the first test from garbage collection.

    They are half a million; scanning them stops the loop for as long as some tests wait.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def stranger(tmp_path: Path) -> Authority:
    """Another authority of the same name."""
    (folder := tmp_path / "stranger").mkdir()
    return Authority(folder)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options for the amount of fuzzing of the OpenAPI document and of each RPC; `python -m trials fuzz` raises it."""
    parser.addoption("--http-examples", type=int, default=1)
    parser.addoption("--http-phases", default="fuzzing")
    parser.addoption("--bad-requests", type=int, default=200)
