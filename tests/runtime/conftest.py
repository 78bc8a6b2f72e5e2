"""Captures what is logged during a test, by us and by libraries."""

import asyncio
from collections.abc import Callable, Generator, Mapping

import pytest
import structlog
import uvloop
from structlog.testing import capture_logs

from tests.support.logged import Logged


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]] | None:
    """Interceptors run on uvloop too, as in production, because the loop decides when a cancellation arrives."""
    both = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return both if item.path.stem == "test_interceptors" else None


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Generator[Logged]:
    with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        yield Logged(lines, caplog)


@pytest.fixture
def quiet(logged: Logged) -> Generator[None]:
    """Actions of peers are not our errors: the test may leave no error in the log except those it takes out."""
    yield
    assert logged.errors == []
