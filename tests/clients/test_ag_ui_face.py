"""The AG-UI face, tested with AG-UI's own client, which fails at the first event that is out of order."""

import json
import shutil
from typing import Any

import pytest

from tests.support.clients.ag_ui import get_command
from tests.support.clients.catalogue import ROOT
from tests.support.clients.programs import Served, check_row, find_version
from tests.support.programs import run_to_end
from tests.support.suite import Running

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(
        shutil.which("npm") is None, reason="NOTICE: Node is not installed: AG-UI's client is not tried"
    ),
]

TIMEOUT_S = 300.0

ANSWER_TEXT = "one two three"


async def run_exercise(url: str, exercise: str) -> Any:
    code, output, complaints = await run_to_end(*get_command(url, exercise), timeout_s=TIMEOUT_S)
    assert code == 0, complaints.decode()
    return json.loads(output.splitlines()[-1])


SCRIPTED = {
    "text": [[ANSWER_TEXT, ANSWER_TEXT], 3],
    "tools": [["I look. ", "It is late."], ["user", "assistant", "assistant", "tool", "assistant"]],
    "function": [["You are in Lyon."], {"name": "locate", "arguments": '{"exact": true}'}],
    "media": [[ANSWER_TEXT], "mill,year", "messages[0].content[1].source"],
    "cuts": [[ANSWER_TEXT]] * 4 + [["I look. ", "It is late."]] * 4,
    "fifty": [ANSWER_TEXT],
    "errors": [[404, "NOT_FOUND"], [404, "NOT_FOUND"], "PROVIDER_AUTHENTICATION"],
}
"""The expected results of exercises with the script of all clients."""


@pytest.mark.parametrize("exercise", SCRIPTED)
async def test_ag_uis_client_follows_runs_of_a_scripted_model(served: Served, exercise: str) -> None:
    assert await run_exercise(served.suite.url, exercise) == SCRIPTED[exercise]
    check_row("@ag-ui/client", find_version(ROOT / "tests/clients/node/package.json", '"@ag-ui/client": "'))


async def test_ag_uis_client_answers_approvals_and_forms(examples: Running) -> None:
    approved, rejected = await run_exercise(examples.url, "approval")
    assert approved[:3] == rejected[:3] == ["tool_call", "publish_note", True]
    assert "added to outputs/notes.md" in approved[3]
    assert "added to" not in rejected[3]
    assert await run_exercise(examples.url, "form") == [["choice"], 1]


async def test_ag_uis_client_gets_plans_and_sub_agents(examples: Running) -> None:
    assert await run_exercise(examples.url, "plan") == ["PLAN", ["completed"] * 3, 3, 1]
    assert await run_exercise(examples.url, "subagents") == [2, 2, 1]
