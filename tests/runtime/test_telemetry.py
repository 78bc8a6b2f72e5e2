"""Spans as services create them, kept in memory; and as a process sends them, to a collector that may be
unavailable."""

import asyncio
import json
import signal
import socket
from collections.abc import Generator
from pathlib import Path

import grpc
import pytest
import structlog
from opentelemetry.trace import format_span_id, format_trace_id
from opentelemetry.trace.status import StatusCode

from headrace.errors import NotFound, Overloaded
from headrace.streams import reading
from headrace.v1 import llm_pb2_grpc
from services.runtime.rpc import call_ids
from services.runtime.rpc.channels import open_channel
from services.runtime.telemetry import spans
from services.runtime.telemetry.spans import check_endpoints, is_enabled
from tests.support.logged import Logged
from tests.support.otlp import collector
from tests.support.scripted_llm import COUNT, REQUEST, serving_script
from tests.support.service_process import small_service
from tests.support.spans import Recorded, recording

TRACE_ID, SPAN_ID = "a" * 32, "b" * 16
GIVEN = f"00-{TRACE_ID}-{SPAN_ID}-01"
COUNT_TOKENS, STREAM_CHAT = "headrace.v1.LlmService/CountTokens", "headrace.v1.LlmService/StreamChat"


@pytest.fixture
def recorded() -> Generator[Recorded]:
    with recording() as collected:
        yield collected


async def test_an_rpc_is_a_span_in_its_callers_trace_and_the_trace_is_forwarded(recorded: Recorded) -> None:
    async with serving_script() as suite:
        await suite.stub.CountTokens(COUNT, metadata=(("x-request-id", "r-1"), ("traceparent", GIVEN)))
        await recorded.until(lambda: bool(recorded.spans))
        forwarded = suite.llm.forwarded
    (span,) = recorded.spans
    assert span.name == COUNT_TOKENS
    assert span.context is not None
    assert span.parent is not None
    assert (format_trace_id(span.context.trace_id), format_span_id(span.parent.span_id)) == (TRACE_ID, SPAN_ID)
    assert forwarded == (
        ("x-request-id", "r-1"),
        ("traceparent", f"00-{TRACE_ID}-{format_span_id(span.context.span_id)}-01"),
    )
    assert span.attributes == {
        "rpc.system.name": "grpc",
        "rpc.method": COUNT_TOKENS,
        "headrace.request.id": "r-1",
        "rpc.response.status_code": "OK",
    }


@pytest.mark.parametrize("given", ["", "x", "00-0-0-01", f"00-{'0' * 32}-{SPAN_ID}-01"])
async def test_without_a_trace_of_its_caller_an_rpc_starts_one(given: str, recorded: Recorded) -> None:
    async with serving_script() as suite:
        await suite.stub.CountTokens(COUNT, metadata=(("traceparent", given),) if given else ())
        await recorded.until(lambda: bool(recorded.spans))
    (span,) = recorded.spans
    assert span.parent is None


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Overloaded("theirs: secret"), (StatusCode.ERROR, "OVERLOADED", "UNAVAILABLE")),
        (NotFound("no secret"), (StatusCode.UNSET, None, "NOT_FOUND")),
        (KeyError("secret"), (StatusCode.ERROR, "INTERNAL", "INTERNAL")),
    ],
)
async def test_an_error_marks_the_span_if_it_is_the_servers_and_without_its_text(
    error: Exception, expected: tuple[StatusCode, str | None, str], recorded: Recorded, logged: Logged
) -> None:
    async with serving_script([error]) as suite:
        with pytest.raises(grpc.aio.AioRpcError):
            await suite.stub.CountTokens(COUNT)
        await recorded.until(lambda: bool(recorded.spans))
    (span,) = recorded.spans
    assert span.attributes is not None
    found = (span.status.status_code, span.attributes.get("error.type"), span.attributes["rpc.response.status_code"])
    assert found == expected
    assert "secret" not in span.to_json()
    assert logged.done["code"] == expected[2]


async def test_a_caller_that_cancels_is_no_error(recorded: Recorded) -> None:
    async with serving_script(["a", 10.0]) as suite:
        async with reading(suite.stub.StreamChat(REQUEST)) as deltas:
            await anext(deltas)
        await recorded.until(lambda: bool(recorded.spans))
    (span,) = recorded.spans
    assert (span.name, span.status.status_code) == (STREAM_CHAT, StatusCode.UNSET)


def test_an_error_marks_its_span_by_class_and_inner_spans_are_children(recorded: Recorded) -> None:
    with spans.start_span("outer", {}), pytest.raises(Overloaded), spans.start_span("inner", {}):
        raise Overloaded("secret")
    with pytest.raises(KeyError), spans.start_span("outer", {}):
        raise KeyError("secret")
    with pytest.raises(asyncio.CancelledError), spans.start_span("cancelled", {}):
        raise asyncio.CancelledError
    inner, outer, broken, cancelled = recorded.spans
    assert inner.parent == outer.context
    assert [span.attributes for span in (inner, outer, broken, cancelled)] == [
        {"error.type": "OVERLOADED"},
        {},
        {"error.type": "KeyError"},
        {},
    ]


def test_a_linked_span_starts_a_trace_that_links_to_its_origin(recorded: Recorded) -> None:
    with (
        spans.start_span("around", {}),
        spans.start_linked_span("later", GIVEN, {}),
        spans.start_linked_span("unknown", "", {}),
    ):
        pass
    unknown, later, _ = recorded.spans
    assert (later.parent, unknown.parent, len(unknown.links)) == (None, None, 0)
    assert [format_span_id(link.context.span_id) for link in later.links] == [SPAN_ID]


def test_log_lines_have_the_ids_of_their_span(recorded: Recorded) -> None:
    with spans.start_span("work", {}):
        inside = spans.get_log_fields()
    (span,) = recorded.spans
    assert span.context is not None
    assert inside == {
        "trace_id": format_trace_id(span.context.trace_id),
        "span_id": format_span_id(span.context.span_id),
    }
    assert spans.get_log_fields() == {}


async def test_the_run_of_a_call_is_in_the_log_lines_of_its_peers(logged: Logged) -> None:
    async with serving_script() as suite:
        call_ids.adopt_metadata([("x-request-id", "r-1")])
        call_ids.bind_run_id("run-1")
        await suite.stub.CountTokens(COUNT, metadata=call_ids.forward_metadata())
        while not logged.named("rpc done"):
            await asyncio.sleep(0.005)
        assert suite.llm.forwarded == (("x-request-id", "r-1"), ("x-run-id", "run-1"))
    structlog.contextvars.clear_contextvars()
    assert (logged.done["request_id"], logged.done["run_id"]) == ("r-1", "run-1")


def test_without_recording_a_span_keeps_nothing() -> None:
    with spans.start_span("work", {}) as span:
        assert not span.is_recording()
        assert (spans.current_traceparent(), spans.get_log_fields()) == ("", {})
    assert spans.start_server_span("rpc", GIVEN, {}) is spans.start_span("other", {})


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
    ],
)
def test_tracing_is_enabled_by_an_endpoint(env: dict[str, str], expected: bool) -> None:
    assert is_enabled(env) is expected


@pytest.mark.parametrize("variable", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
@pytest.mark.parametrize("endpoint", ["nonsense", "localhost:4318", "http://", "ftp://collector", "http:///v1/traces"])
async def test_an_invalid_endpoint_ends_the_start(variable: str, endpoint: str) -> None:
    with pytest.raises(ValueError, match=f"^{variable}: '{endpoint}': expected an address such as http://"):
        check_endpoints({variable: endpoint})


async def test_a_process_reports_an_invalid_endpoint_and_ends(tmp_path: Path) -> None:
    async with small_service(OTEL_EXPORTER_OTLP_ENDPOINT="nonsense") as small:
        code, lines = await small.ended()
    assert code == 2
    assert [line.startswith(b"memory: OTEL_EXPORTER_OTLP_ENDPOINT: 'nonsense': ") for line in lines] == [True]


async def call_twice(address: str) -> None:
    """Make one call within a trace that its caller records, and one within a trace that it does not."""
    async with open_channel(address) as channel:
        stub = llm_pb2_grpc.LlmServiceStub(channel)
        for flags in ("01", "00"):
            given = f"00-{TRACE_ID}-{SPAN_ID}-{flags}"
            async with reading(stub.StreamChat(REQUEST, metadata=(("traceparent", given),))) as deltas:
                async for _ in deltas:
                    pass


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        ({}, 1),
        ({"OTEL_TRACES_SAMPLER": "always_off"}, 0),
        ({"OTEL_TRACES_SAMPLER": "always_on", "OTEL_SERVICE_NAME": "mine"}, 2),
    ],
)
async def test_a_process_exports_spans_as_the_standard_variables_say(
    sampling: dict[str, str], expected: int, tmp_path: Path
) -> None:
    address = f"unix:{tmp_path}/socket"
    async with collector() as collected:
        env = {"HEADRACE_MEMORY_LISTEN": address, "OTEL_EXPORTER_OTLP_ENDPOINT": collected.endpoint} | sampling
        async with small_service(**env) as small:
            await small.logged("serving")
            await call_twice(address)
            small.process.send_signal(signal.SIGTERM)
            code, _ = await small.ended()
    assert code == 0
    assert [(span.service, span.name) for span in collected.spans] == [
        (sampling.get("OTEL_SERVICE_NAME", "headrace-memory"), STREAM_CHAT)
    ] * expected


async def test_an_unavailable_collector_causes_one_warning_and_nothing_else(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/socket"
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        env = {
            "HEADRACE_MEMORY_LISTEN": address,
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "0.2",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
            "HEADRACE_LOG_LEVEL": "DEBUG",
        }
        async with small_service(**env) as small:
            await small.logged("serving")
            await call_twice(address)
            assert (await small.logged("spans not exported"))["level"] == "warning"
            await call_twice(address)
            small.process.send_signal(signal.SIGTERM)
            code, lines = await small.ended()
    assert code == 0
    assert {json.loads(line)["event"] for line in lines} == {"rpc done", "stopped"}


async def test_a_collector_that_returns_receives_spans_again(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/socket"
    env = {"HEADRACE_MEMORY_LISTEN": address, "OTEL_EXPORTER_OTLP_TIMEOUT": "0.2", "OTEL_BSP_SCHEDULE_DELAY": "50"}
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        async with small_service(**env, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{port}") as small:
            await small.logged("serving")
            await call_twice(address)
            await small.logged("spans not exported")
            reserved.close()
            async with collector(port) as collected:
                await call_twice(address)
                assert (await small.logged("spans exported again"))["lost"] >= 1
                assert collected.named(STREAM_CHAT)


async def test_a_wrong_variable_is_reported_in_one_line() -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_BSP_MAX_QUEUE_SIZE": "1"}
    async with small_service(HEADRACE_MEMORY_LISTEN="127.0.0.1:0", **env) as small:
        assert "OTEL_" in (await small.logged("cannot start"))["error"]
        assert (await small.ended())[0] == 1
