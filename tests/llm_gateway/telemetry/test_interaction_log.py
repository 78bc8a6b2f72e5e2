"""The interaction log: one line for each call, and at DEBUG also one for each delta."""

import logging
from collections.abc import Callable, Generator
from typing import Any

import pytest
import structlog
from structlog.testing import LogCapture

from services.runtime.process import logs
from tests.support.llm_gateway.answering import HELLO
from tests.support.llm_gateway.gateway import Asking
from tests.support.llm_gateway.scripted import END, ORDINARY, Exchange, chunk, serving_script


@pytest.fixture
def logged() -> Generator[Callable[[str], list[Any]]]:
    """Yield a function that sets a level and returns the list that receives the log lines."""
    before = structlog.get_config()

    def start(level: str) -> list[Any]:
        capture = LogCapture()
        wrapper = structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level])
        processors = [structlog.contextvars.merge_contextvars, capture]
        structlog.configure(processors=processors, wrapper_class=wrapper, cache_logger_on_first_use=False)
        return capture.entries

    yield start
    structlog.configure(**before)


async def test_a_call_is_logged_in_one_line_with_its_figures_and_ids(
    asking: Asking, logged: Callable[[str], list[Any]]
) -> None:
    entries = logged("INFO")
    async with asking([{"steps": [{"content": ["secret words", "b"]}]}]) as gateway:
        await gateway.chat(stage="react")
    (line,) = [entry for entry in entries if entry["event"] == "model called"]
    assert (line["stage"], line["provider"], line["model"], line["attempt"]) == ("react", "sim", "sim-1", 1)
    assert (line["outcome"], line["deltas"], line["output_tokens"]) == ("stop", 2, 2)
    assert 0 < line["first_delta_ms"] <= line["ms"]
    assert line["request_id"]
    assert "secret words" not in repr(entries)


@pytest.mark.parametrize(("step", "outcome"), [({"status": 503}, "OVERLOADED"), ({"raw": "data: {x\n\n"}, "BAD_FRAME")])
async def test_a_failed_call_has_its_reason_as_outcome(
    asking: Asking, logged: Callable[[str], list[Any]], step: Any, outcome: str
) -> None:
    entries = logged("INFO")
    async with asking([{"steps": [step]}]) as gateway:
        await gateway.chat()
    assert [entry["outcome"] for entry in entries if entry["event"] == "model called"] == [outcome]


async def test_debug_logs_each_delta_with_credentials_masked(
    asking: Asking, logged: Callable[[str], list[Any]]
) -> None:
    entries = logged("DEBUG")
    steps = [{"content": "password=hunter2"}, {"toolCall": "f", "id": "a", "arguments": ["{}"]}]
    async with asking([{"steps": steps}]) as gateway:
        await gateway.chat()
    deltas = [entry for entry in entries if entry["event"] == "delta"]
    assert [entry["kind"] for entry in deltas] == ["started", "content", "tool_call", "tool_call", "usage", "finish"]
    assert deltas[1]["value"] == "password=***"
    assert (deltas[2]["tool"], deltas[3]["value"]) == ("f", "{}")


async def test_deltas_on_a_reused_connection_are_logged_with_their_own_calls_id(
    asking: Asking, logged: Callable[[str], list[Any]]
) -> None:
    entries = logged("DEBUG")

    async def hello(exchange: Exchange) -> None:
        await exchange.say(ORDINARY)
        await exchange.say(chunk(HELLO.partition(b"\r\n\r\n")[2]) + END)

    async with serving_script(hello) as server, asking(baseUrl=server.url) as gateway:
        for _ in range(2):
            await gateway.chat()
        assert server.connections == 1
    ids = [entry["request_id"] for entry in entries if entry["event"] == "model called"]
    deltas = [entry["request_id"] for entry in entries if entry["event"] == "delta"]
    assert deltas == [ids[0]] * 4 + [ids[1]] * 4


def test_a_services_logger_reports_its_level() -> None:
    before = structlog.get_config()
    logs.configure_logging("INFO", "llm_gateway")
    assert not structlog.get_logger().is_enabled_for(logging.DEBUG)
    structlog.configure(**before)
