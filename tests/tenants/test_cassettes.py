"""What a recording shows to whom: its user's own words to the user, the operator's programs to operators."""

import json
from pathlib import Path

import pytest

from headrace.cassette.lines import read_cassette
from services.replay.replaying import find_refusal
from tests.support.tenants.suite import MODEL, serving_tenants

MODE = "async def run(mode):\n    # how we price it\n    return None if await mode.answer('Now answer.') else ''\n"
AGENT = {"mode": "CUSTOM", "modelConfig": MODEL, "custom": {"mode": "own", "systemPrompt": "You work."}}


@pytest.mark.parametrize("is_operator", [False, True])
async def test_what_the_operator_has_written_is_for_operators(tmp_path: Path, *, is_operator: bool) -> None:
    for part in ("modes", "agents"):
        (tmp_path / part).mkdir()
    (tmp_path / "modes" / "own.py").write_text(MODE)
    (tmp_path / "agents" / "own.json").write_text(json.dumps(AGENT))
    (tmp_path / "approvals.yaml").write_text("risks: {high: [mill-secret]}\n")
    async with serving_tenants(tmp_path) as suite:
        made = await suite.make_key("of the test", "cat", scopes=["ask", "operate"] if is_operator else ["ask"])
        async with suite.connect(made.secret) as cat:
            async with cat.ask("hello", agent_key="own", record=True) as run:
                run_id = [event async for event in run][-1].run_complete.run_id
            lines = await cat.cassette(run_id)
    cassette = read_cassette(lines)
    assert cassette.query["message"] == "hello"
    assert cassette.events[-1]["type"] == "run.complete"
    written = [text for text in ("how we price it", "mill-secret", "systemPrompt") if text in "".join(lines)]
    assert len(written) == (3 if is_operator else 0)
    assert (cassette.modes["own"].is_whole, bool(cassette.withheld)) == (is_operator, not is_operator)
    assert ("withheld" in find_refusal(cassette, runs_modes=True)) == (not is_operator)
