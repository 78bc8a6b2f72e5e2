"""Our tools service as a client of MCP servers, judged by the client scenarios of the official conformance program."""

import json
from pathlib import Path

import pytest

from tests.judges.mcp.harness import judge_client
from tests.support.timing import within

SCENARIOS = json.loads(Path(__file__).with_name("client_scenarios.json").read_text())
"""Those of the check and of the nightly, and why some of these fail; the others are of extensions that we do not offer:
client credentials, DPoP, workload identity, an enterprise's authorization, and skills as resources."""


def mark_slow(name: str) -> list[pytest.MarkDecorator]:
    reason = SCENARIOS["expected"].get(name)
    return [pytest.mark.nightly, *([pytest.mark.xfail(strict=True, reason=reason)] if reason else [])]


@pytest.mark.parametrize(
    "scenario", [*SCENARIOS["quick"], *(pytest.param(name, marks=mark_slow(name)) for name in SCENARIOS["slow"])]
)
async def test_the_client_passes_the_conformance_scenarios(scenario: str, tmp_path: Path) -> None:
    async with within(240):
        failures, report = await judge_client(scenario, tmp_path)
    assert failures == {}, report
