"""Which request headers are forwarded to the services: an explicit list, and nothing else."""

from pathlib import Path

from services.runtime.auth.identity import ALL_SCOPES
from tests.support.facade.fronts import Front, embedded, gateway
from tests.support.facade.scripted import Script, answering, read_all_frames, suite

TRACE = f"00-{'a' * 32}-{'b' * 16}-01"
GIVEN = {
    "X-Request-Id": "mine-1",
    "traceparent": TRACE,
    "tracestate": "a=b",
    "X-Mcp-Files-Authorization": "Bearer me",
    "X-Mcp-Authorization": "Bearer nobody's",
    "Authorization": "Bearer secret",
    "X-API-Key": "secret",
    "X-Headrace-Tenant": "other",
    "X-Headrace-User": "other",
    "X-Headrace-Caller": "orchestrator",
    "X-Headrace-Token": "guessed",
    "Cookie": "secret=1",
    "X-Tool-Bank_1-Credential": "mine",
    "X-Tool-Bank-Authorization": "Bearer none",
    "X-Forwarded-For": "10.0.0.1",
    "X-Forwarded-Host": "evil",
    "Grpc-Metadata-X-Request-Id": "theirs",
    "Grpc-Timeout": "1n",
    "TE": "trailers",
    "Accept": "application/x-protobuf",
}
PASSED = {
    "x-request-id": "mine-1",
    "traceparent": TRACE,
    "x-mcp-files-authorization": "Bearer me",
    "x-tool-bank_1-credential": "mine",
}
IDENTITY_HEADERS: dict[Front, dict[str, str]] = {
    embedded: {
        "x-headrace-tenant": "default",
        "x-headrace-user": "default",
        "x-headrace-scopes": ",".join(sorted(ALL_SCOPES)),
    },
    gateway: {"authorization": "Bearer secret", "x-api-key": "secret", "x-headrace-client-address": "127.0.0.1"},
}
"""The embedded facade has checked the credential; the gateway leaves that to the services, and names the client."""

GRPC_OWN = {"user-agent", "grpc-accept-encoding", "accept-encoding", "content-type", "te"}


async def test_ids_and_tool_credentials_are_forwarded_and_nothing_else(tmp_path: Path, front: Front) -> None:
    async with suite(tmp_path, Script(query=answering("a")), front=front) as facade:
        async with facade.http.get("/api/agents", headers=GIVEN) as response:
            assert response.status == 200
            assert response.headers["X-Request-Id"] == "mine-1"
            assert response.content_type == "application/json"
            assert "Trailer" not in response.headers
        async with facade.http.post("/api/query", json={"message": "hi"}, headers=GIVEN) as response:
            await read_all_frames(response)
        for metadata in facade.script.metadata:
            assert {
                name: value for name, value in metadata.items() if name not in GRPC_OWN
            } == PASSED | IDENTITY_HEADERS[front]
    assert len(facade.script.metadata) == 2


async def test_a_forged_id_is_replaced_and_an_invalid_trace_is_dropped(tmp_path: Path, front: Front) -> None:
    forged = {"X-Request-Id": "a b", "traceparent": "x", "X-Mcp-Files-Authorization": "x" * 5000}
    async with suite(tmp_path, front=front) as facade, facade.http.get("/api/agents", headers=forged) as response:
        request_id = response.headers["X-Request-Id"]
    metadata = facade.script.metadata[0]
    assert metadata["x-request-id"] == request_id != "a b"
    assert len(request_id) == 36
    assert "traceparent" not in metadata
    assert "x-mcp-files-authorization" not in metadata
