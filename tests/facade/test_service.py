"""Routes, envelope, limits and ids over real sockets; the peers are scripted."""

import io
from collections.abc import AsyncGenerator
from importlib import import_module
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from google.api import annotations_pb2
from structlog.testing import capture_logs

import headrace.v1
from services.facade.proto_routes import load_routes
from services.facade.responses.envelope import HTTP_STATUS
from tests.support.facade.fronts import DEFAULTS, PEERS, embedded
from tests.support.facade.scripted import CHAT, RUN, Script, suite
from tests.support.raw_http import sending

ASK = {"message": "hi"}


def list_contract_files() -> list[Any]:
    folder = Path(headrace.v1.__file__).parent
    modules = [import_module(f"headrace.v1.{path.stem}") for path in sorted(folder.glob("*_pb2.py"))]
    return [module.DESCRIPTOR for module in modules]


def test_every_annotated_rpc_is_a_route_and_nothing_else_is() -> None:
    annotated = {
        rpc.full_name
        for file in list_contract_files()
        for service in file.services_by_name.values()
        for rpc in service.methods
        if rpc.GetOptions().HasExtension(annotations_pb2.http)
    }
    assert {route.rpc.full_name for route in load_routes()} == annotated
    assert len({(route.verb, route.path) for route in load_routes()}) == len(load_routes())


def test_every_grpc_code_has_an_http_status() -> None:
    assert set(HTTP_STATUS) == set(grpc.StatusCode)


JSON = {"Content-Type": "application/json"}


async def test_a_success_is_enveloped_with_other_fields_next_to_data(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        async with facade.http.get("/api/chats") as response:
            body = await response.json()
        assert (body["code"], body["msg"], body["nextPageToken"]) == (0, "success", "p2")
        assert body["data"][0]["chatId"] == CHAT
        async with facade.http.post("/api/submit", json={"runId": RUN, "toolId": "t", "params": {"a": 1}}) as response:
            assert (await response.json())["data"]["accepted"] is True
        assert facade.script.requests[-1].payload == '{"a": 1}'


@pytest.mark.parametrize(
    ("verb", "path", "status", "reason"),
    [
        ("GET", "/api/agent?agentKey=x", 404, "NOT_FOUND"),
        ("GET", "/api/agent", 400, "INVALID_REQUEST"),
        ("GET", "/api/agents?tagg=x", 400, "INVALID_REQUEST"),
        ("GET", "/api/nothing", 404, "NOT_FOUND"),
        ("GET", "/api/query", 405, "UNSUPPORTED"),
        ("GET", f"/api/run?runId={RUN}", 500, "INTERNAL"),
        ("GET", f"/api/cassette?runId={RUN}", 501, "UNIMPLEMENTED"),
        ("GET", f"/api/resource?chatId={CHAT}&path=x", 404, "NOT_FOUND"),
        ("POST", "/api/upload", 400, "INVALID_REQUEST"),
        ("DELETE", "/api/chat?chatId=../../x", 400, "INVALID_REQUEST"),
    ],
)
async def test_a_failure_is_enveloped_with_its_status(
    tmp_path: Path, verb: str, path: str, status: int, reason: str
) -> None:
    async with suite(tmp_path) as facade, facade.http.request(verb, path) as response:
        body = await response.json()
    assert (response.status, body["code"], body["data"], body["error"]["code"]) == (status, status, {}, reason)
    assert "secret" not in body["msg"]


@pytest.mark.parametrize("says_its_size", [True, False])
async def test_a_body_over_4_mib_is_413_and_the_facade_keeps_serving(tmp_path: Path, says_its_size: bool) -> None:
    async def chunks() -> AsyncGenerator[bytes]:
        for _ in range(30):
            yield b" " * (1 << 20)

    async with suite(tmp_path) as facade:
        body = io.BytesIO(b" " * (30 << 20)) if says_its_size else chunks()
        async with facade.http.post("/api/query", data=body, headers=JSON) as response:
            assert response.status == 413
            assert (await response.json())["error"] == {
                "code": "INVALID_REQUEST",
                "retriable": False,
                "details": {"field": "body", "rule": "must not be larger than 4194304 bytes"},
            }
        async with facade.http.get("/healthz") as response:
            assert response.status == 200


async def test_each_request_has_one_log_line_without_its_content(tmp_path: Path) -> None:
    with capture_logs() as lines:
        async with suite(tmp_path) as facade, facade.http.get("/api/agents?tag=private"), facade.http.get("/private"):
            pass
    request_lines = [line for line in lines if line["event"] == "http done"]
    assert {(line["route"], line["status"]) for line in request_lines} == {("/api/agents", 200), ("unknown", 404)}
    assert "private" not in str(request_lines)


async def test_health_checks_are_logged_only_at_debug_level(tmp_path: Path) -> None:
    with capture_logs() as lines:
        async with suite(tmp_path) as facade:
            for path in ("/healthz", "/readyz"):
                async with facade.http.get(path) as response:
                    assert response.status == 200
    levels = [(line["route"], line["log_level"]) for line in lines if line["event"] == "http done"]
    assert levels == [("/healthz", "debug"), ("/readyz", "debug")]


async def test_a_response_does_not_reveal_the_http_library(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        for path in ("/healthz", "/nowhere", "/"):
            async with facade.http.get(path) as response:
                assert response.headers["Server"] == "headrace"
        async with sending(facade.url, b"no HTTP at all\r\n\r\n") as reader:
            answer = await reader.read()
    assert b"\r\nServer: headrace\r\n" in answer


async def test_readyz_all_reports_each_peer_and_healthz_calls_none(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        async with facade.http.get("/healthz") as response:
            assert (response.status, (await response.json())["data"]) == (200, {"status": "live"})
        async with facade.http.get("/readyz") as response:
            assert (response.status, (await response.json())["data"]) == (200, {"facade": True})
        async with facade.http.get("/readyz?all") as response:
            assert response.status == 200
            assert (await response.json())["data"] == {"orchestrator": True, "memory": True, "tools": True}


async def test_a_facade_stays_ready_while_its_peers_are_unavailable() -> None:
    async with embedded(dict.fromkeys(PEERS, "unix:/nobody"), DEFAULTS) as url, aiohttp.ClientSession(url) as http:
        async with http.get("/readyz") as response:
            assert (response.status, (await response.json())["data"]) == (200, {"facade": True})
        async with http.get("/readyz?all") as response:
            assert (response.status, (await response.json())["data"]) == (503, dict.fromkeys(PEERS, False))
        async with http.get("/api/agents") as response:
            assert (response.status, (await response.json())["error"]["code"]) == (503, "PROVIDER_UNAVAILABLE")
        async with http.post("/api/query", json={"message": "hi"}) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (503, "PROVIDER_UNAVAILABLE")


async def test_an_invalid_last_event_id_header_is_refused_by_its_name(tmp_path: Path) -> None:
    async with (
        suite(tmp_path) as facade,
        facade.http.get(f"/api/attach?runId={RUN}&lastSeq=3", headers={"Last-Event-ID": "abc"}) as response,
    ):
        assert (await response.json())["msg"].startswith("Last-Event-ID: must be a whole number")


CALLS = {
    "a2a": ("/a2a/broken", {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": RUN}}),
    "ag-ui": ("/agui/broken", {}),
    "mcp": ("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "broken"}}),
}


@pytest.mark.parametrize("adapter", CALLS)
@pytest.mark.parametrize(
    ("refused_file", "is_told"),
    [
        ({}, False),
        ({"file": "broken.json"}, True),
        ({"file": "broken.json", "publish": "a2a,ag-ui,mcp"}, True),
        ({"file": "broken.json", "publish": ""}, False),
    ],
)
async def test_a_published_agent_with_a_refused_file_differs_from_a_missing_one(
    tmp_path: Path, adapter: str, refused_file: dict[str, str], is_told: bool
) -> None:
    path, body = CALLS[adapter]
    accept = {"Accept": "application/json, text/event-stream"}
    async with (
        suite(tmp_path, Script(publish=[adapter], refused_file=refused_file)) as facade,
        facade.http.post(path, json=body, headers=accept) as response,
    ):
        text = (await response.read()).decode()
    assert ("no agent 'broken' is published here" in text) is not is_told
    assert ("no agent 'broken'" in text) is True
