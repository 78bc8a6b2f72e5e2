"""Bad input is refused with field and rule, and the suite does not mind."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.support.suite import Suite

pytestmark = pytest.mark.asyncio(loop_scope="session")

NESTED = b'{"message": "x", "params": ' + b"[" * 5000 + b"]" * 5000 + b"}"
BAD: list[tuple[str, bytes, int, str]] = [
    ("not JSON", b"{nonsense", 400, "body"),
    ("not an object", b"[1]", 400, "body"),
    ("not UTF-8", b'{"message": "\xff"}', 400, "body"),
    ("no message", b"{}", 400, "message"),
    ("an empty message", b'{"message": ""}', 400, "message"),
    ("a number for text", b'{"message": 5}', 400, "message"),
    ("text for a boolean", b'{"message": "x", "stream": "no"}', 400, "stream"),
    ("text for a list", b'{"message": "x", "references": "a"}', 400, "references"),
    ("a reference without an id", b'{"message": "x", "references": [{"name": "a"}]}', 400, "references[0].id"),
    ("a path for a chat", b'{"message": "x", "chatId": "../../x"}', 400, "chatId"),
    ("an unknown word", b'{"message": "x", "whenBusy": "maybe"}', 400, "whenBusy"),
    ("an unknown field", b'{"message": "x", "agentkey": "plain"}', 400, "agentkey"),
    ("an unknown agent", b'{"message": "x", "agentKey": "nobody"}', 404, "agentKey"),
    ("5,000-fold nesting", NESTED, 400, "params"),
    ("a bare nesting", b"[" * 5000, 400, "body"),
    ("a lone surrogate", b'{"message": "\\ud800"}', 400, "body"),
]


@pytest.mark.parametrize(("body", "status", "field"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
async def test_a_bad_body_is_refused_with_field_and_rule(suite: Suite, body: bytes, status: int, field: str) -> None:
    got, answer = await suite.post("/api/query", body)
    assert (got, answer["code"], answer["data"]) == (status, status, {})
    details: dict[str, Any] = answer["error"]["details"]
    assert field in (details["field"], "params" if details["field"] == "body" else "")
    assert status == 404 or details["rule"]
    assert (await suite.ask("still there?"))[-1]["type"] == "run.complete"


async def test_a_body_of_30_mb_is_too_large(suite: Suite) -> None:
    got, answer = await suite.post("/api/query", json.dumps({"message": "x" * 30_000_000}).encode())
    assert (got, answer["code"]) == (413, 413)
    assert (await suite.ask("still there?"))[-1]["type"] == "run.complete"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/nothing", 404),
        ("/api/agent?agentKey=nobody", 404),
        ("/api/agent", 400),
        ("/api/chat?chatId=..%2F..%2Fx", 400),
        ("/api/chat?chatId=5f0c0000-0000-4000-8000-000000000009", 404),
        ("/api/run?runId=5f0c0000-0000-4000-8000-000000000009", 404),
        ("/api/attach?runId=5f0c0000-0000-4000-8000-000000000009", 404),
        ("/api/attach?runId=x", 400),
        ("/api/chats?pageSize=many", 400),
        ("/api/query", 405),
    ],
)
async def test_a_bad_question_is_refused(suite: Suite, path: str, status: int) -> None:
    async with suite.http.get(suite.url + path) as response:
        answer = await response.json()
    assert (response.status, answer["code"]) == (status, status)
    assert answer["error"]["code"]


async def test_a_bad_agent_file_harms_only_itself(suite: Suite) -> None:
    (suite.config_dir / "agents" / "broken.json").write_text('{"mode": "LOOP"}')
    (suite.config_dir / "agents" / "extra.json").write_text((suite.config_dir / "agents" / "plain.json").read_text())
    keys: list[str] = []
    async with asyncio.timeout(100):
        while "extra" not in keys:
            await asyncio.sleep(0.05)
            _, agents = await suite.get("/api/agents")
            keys = [agent["key"] for agent in agents["data"]]
    assert "broken" not in keys
    assert "plain" in keys
    log = (suite.data_dir / "logs" / "suite.log").read_text()
    refused = [json.loads(line) for line in log.splitlines() if "agent file refused" in line]
    assert refused[-1]["file"] == "broken.json"
    assert "mode: Input should be 'ONESHOT', 'REACT', 'PLAN_EXECUTE', 'CUSTOM' or 'REMOTE'" in refused[-1]["problem"]
