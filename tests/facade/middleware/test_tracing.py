"""The spans of HTTP requests: the route and not the path, errors of ours and not the client's, nothing for probes."""

import os
import shutil
from pathlib import Path

import pytest
from opentelemetry.trace.status import StatusCode

from tests.support.facade.scripted import CHAT, RUN, Script, answering, suite
from tests.support.programs import run_to_end
from tests.support.spans import recording


async def test_a_request_is_a_span_by_its_route_and_only_our_failures_are_marked(tmp_path: Path) -> None:
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


async def test_what_machines_ask_every_few_seconds_is_no_span(tmp_path: Path) -> None:
    with recording() as recorded:
        async with suite(tmp_path) as facade:
            for path in ("/healthz", "/readyz"):
                async with facade.http.get(path) as response:
                    assert response.status == 200
    assert recorded.names == []


NOBODY = 65534
PYTHON = shutil.which("python3", path="/usr/bin:/bin")
"""An interpreter that other users may run too."""

ASKING = """
import sys, urllib.error, urllib.request
for path in ("/api/agents", "/healthz"):
    try:
        print(urllib.request.urlopen(sys.argv[1] + path).status)
    except urllib.error.HTTPError as error:
        print(error.code)
"""


@pytest.mark.skipif(os.geteuid() != 0 or PYTHON is None, reason="NOTICE: only root starts programs of other users")
async def test_only_the_user_who_runs_a_facade_may_use_it(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(query=answering("x"))) as facade:
        for user, statuses in ((NOBODY, b"403\n200\n"), (0, b"200\n200\n")):
            assert PYTHON is not None
            assert (await run_to_end(PYTHON, "-I", "-c", ASKING, facade.url, user=user))[1] == statuses
