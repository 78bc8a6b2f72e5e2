"""Bad input is refused with field and rule, and the suite does not mind."""

import json

import pytest

from tests.support.suite import Suite

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (b"{nonsense", 400, "body"),
        (b'{"message": "x", "references": [{"name": "a"}]}', 400, "references[0].id"),
        (b'{"message": "x", "agentKey": "nobody"}', 404, "agentKey"),
    ],
)
async def test_a_bad_body_is_refused_with_field_and_rule(suite: Suite, body: bytes, status: int, field: str) -> None:
    got, answer = await suite.post("/api/query", body)
    assert (got, answer["code"], answer["data"]) == (status, status, {})
    assert answer["error"]["details"]["field"] == field
    assert (await suite.ask("still there?"))[-1]["type"] == "run.complete"


async def test_a_bad_agent_file_harms_only_itself(suite: Suite) -> None:
    (suite.config_dir / "agents" / "broken.json").write_text('{"mode": "LOOP"}')
    (suite.config_dir / "agents" / "extra.json").write_text((suite.config_dir / "agents" / "plain.json").read_text())
    await suite.until_known("extra")
    _, agents = await suite.get("/api/agents")
    keys = [agent["key"] for agent in agents["data"]]
    assert "broken" not in keys
    assert "plain" in keys
    log = (suite.data_dir / "logs" / "suite.log").read_text()
    refused = [json.loads(line) for line in log.splitlines() if "agent file refused" in line]
    assert refused[-1]["file"] == "broken.json"
    assert "mode: Input should be 'ONESHOT', 'REACT', 'PLAN_EXECUTE', 'CUSTOM' or 'REMOTE'" in refused[-1]["problem"]
