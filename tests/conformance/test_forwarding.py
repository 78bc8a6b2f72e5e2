"""What goes from a request's headers into the calls behind it: an explicit list and nothing else."""

from pathlib import Path

from services.runtime.auth.identity import ALL_SCOPES
from tests.support.facade.fronts import Front, embedded, gateway
from tests.support.facade.scripted import Script, answering, frames_of, suite

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
WHOSE: dict[Front, dict[str, str]] = {
    embedded: {
        "x-headrace-tenant": "default",
        "x-headrace-user": "default",
        "x-headrace-scopes": ",".join(sorted(ALL_SCOPES)),
    },
    gateway: {"authorization": "Bearer secret", "x-api-key": "secret", "x-headrace-client-address": "127.0.0.1"},
}
"""The one has looked at the credential, the other leaves it to the services, and says whose it is."""

GRPC_OWN = {"user-agent", "grpc-accept-encoding", "accept-encoding", "content-type", "te"}


async def test_ids_and_credentials_for_tools_go_on_and_nothing_else_does(tmp_path: Path, front: Front) -> None:
    async with suite(tmp_path, Script(query=answering("a")), front=front) as facade:
        async with facade.http.get("/api/agents", headers=GIVEN) as response:
            assert response.status == 200
            assert response.headers["X-Request-Id"] == "mine-1"
            assert response.content_type == "application/json"
            assert "Trailer" not in response.headers
        async with facade.http.post("/api/query", json={"message": "hi"}, headers=GIVEN) as response:
            await frames_of(response)
        for heard in facade.script.metadata:
            assert {name: value for name, value in heard.items() if name not in GRPC_OWN} == PASSED | WHOSE[front]
    assert len(facade.script.metadata) == 2


async def test_an_id_that_forges_is_replaced_and_a_bad_trace_is_left_out(tmp_path: Path, front: Front) -> None:
    forged = {"X-Request-Id": "a b", "traceparent": "x", "X-Mcp-Files-Authorization": "x" * 5000}
    async with suite(tmp_path, front=front) as facade, facade.http.get("/api/agents", headers=forged) as response:
        made = response.headers["X-Request-Id"]
    heard = facade.script.metadata[0]
    assert heard["x-request-id"] == made != "a b"
    assert len(made) == 36
    assert "traceparent" not in heard
    assert "x-mcp-files-authorization" not in heard
