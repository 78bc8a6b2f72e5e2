"""Spans of HTTP requests: named by route, marked failed only for our errors, and none for health checks."""

from pathlib import Path

from opentelemetry.trace.status import StatusCode

from tests.support.facade.scripted import CHAT, RUN, suite
from tests.support.spans import recording


async def test_a_requests_span_is_named_by_route_and_marks_only_server_errors(tmp_path: Path) -> None:
    with recording() as recorded:
        async with suite(tmp_path) as facade:
            for path in (f"/api/run?runId={RUN}", "/api/nobody/the-secret", f"/api/chat?chatId={CHAT}&x=the-secret"):
                async with facade.http.get(path) as response:
                    await response.read()
            await recorded.until(lambda: len([name for name in recorded.names if name.startswith("GET")]) == 3)
    of_http = {span.name: span for span in recorded.spans if span.name.startswith("GET")}
    found = {
        name: (span.attributes and span.attributes["http.response.status_code"], span.status.status_code)
        for name, span in of_http.items()
    }
    assert found == {
        "GET /api/run": (500, StatusCode.ERROR),
        "GET unknown": (404, StatusCode.UNSET),
        "GET /api/chat": (400, StatusCode.UNSET),
    }
    assert of_http["GET /api/run"].attributes is not None
    assert of_http["GET /api/run"].attributes["error.type"] == "INTERNAL"
    assert recorded.above(recorded.only("headrace.v1.AgentService/GetRun")) == ["GET /api/run"]
    assert "the-secret" not in "".join(span.to_json() for span in recorded.spans)


async def test_health_checks_create_no_spans(tmp_path: Path) -> None:
    with recording() as recorded:
        async with suite(tmp_path) as facade:
            for path in ("/healthz", "/readyz"):
                async with facade.http.get(path) as response:
                    assert response.status == 200
    assert recorded.names == []
