"""Our MCP server adapter, judged by all server scenarios of the official conformance program."""

import json
from pathlib import Path

from tests.judges.mcp.harness import judge_server
from tests.support.suite import up
from tests.support.timing import within

EXPECTED: dict[str, dict[str, list[str]]] = json.loads(Path(__file__).with_name("expected_failures.json").read_text())
"""The checks that fail, by why they cannot hold for a server of agents, and by their scenarios."""

SCENARIOS = 65


async def test_the_adapter_passes_the_conformance_scenarios_except_the_expected(tmp_path: Path) -> None:
    folders = ("--config-dir", "examples", "--data-dir", str(tmp_path / "data"))
    options = ("--simulate", "--simulate-port", "0", *folders)
    async with within(300), up(*options, HEADRACE_FACADE_PUBLISH="mcp", HEADRACE_DRAIN_S="0.2") as suite:
        failures = await judge_server(f"{suite.url}/mcp", tmp_path / "results")
    expected = {(name, check) for scenarios in EXPECTED.values() for name in scenarios for check in scenarios[name]}
    problems = {(name, check): text for name, checks in failures.items() for check, text in checks.items()}
    assert {at: text for at, text in problems.items() if at not in expected} == {}
    assert expected - problems.keys() == set(), "these hold now: take them off the list"
    assert len(failures) == SCENARIOS
