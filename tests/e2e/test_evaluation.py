"""An evaluation of 200 cases × 2 variants against a real suite, killed halfway: no model call is repeated."""

import asyncio
import json
import signal
from collections import Counter
from pathlib import Path

import pytest
import yaml

from services.simulator.server import simulator
from tests.support.command_line import GIVEN_UP_S, start
from tests.support.suite import running

CASES = 200
RUNS = 2 * CASES

SUITE = {
    "agents": [{"name": "curt", "agentKey": "plain", "prompt": "curt.txt"}, {"name": "plain", "agentKey": "plain"}],
    "concurrency": 8,
    "cases": [
        {"name": f"case {number}", "message": f"question {number}", "checks": [{"contains": "yes"}]}
        for number in range(CASES)
    ],
    "thresholds": {"passRate": 0.9},
}

RULES = [{"match": {"text": "question .*[05]$"}, "steps": [{"content": "no"}]}, {"steps": [{"content": "yes"}]}]


@pytest.mark.nightly
async def test_a_killed_evaluation_continues_without_repeating_model_calls(tmp_path: Path) -> None:
    (tmp_path / "curt.txt").write_text("Be curt.")
    path, journal = tmp_path / "suite.yaml", tmp_path / "suite.yaml.journal"
    path.write_text(yaml.safe_dump(SUITE))
    folders = (tmp_path / "config", tmp_path / "data")
    async with simulator(RULES) as sim, running(*folders, sim) as suite:
        options = ("eval", str(path), "--jsonl", str(tmp_path / "out.jsonl"))
        first = await start(*options, url=suite.url)
        while not journal.exists() or journal.read_bytes().count(b"\n") < RUNS // 4:
            assert first.returncode is None, "the evaluation ended before it could be killed"
            await asyncio.sleep(0.01)
        first.send_signal(signal.SIGKILL)
        await first.wait()
        results_before = journal.read_bytes().count(b"\n")
        assert results_before < RUNS
        second = await start(*options, url=suite.url)
        async with asyncio.timeout(GIVEN_UP_S):
            out, complaints = await second.communicate()
        model_calls = Counter(
            (request.body["messages"][0]["content"], request.body["messages"][1]["content"]) for request in sim.requests
        )
    assert second.returncode == 1, out + complaints
    assert len(model_calls) == RUNS
    assert set(model_calls.values()) == {1}, "no model is asked twice"
    results = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(results) == RUNS
    assert out.decode().count("80%") >= 2, out.decode()
