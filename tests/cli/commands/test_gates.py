"""What waits for people, from the command line: listed, shown, answered."""

from __future__ import annotations

import json
from pathlib import Path

from headrace.v1 import gates_pb2
from tests.cli.commands.test_ask import run
from tests.facade.scripted import GATE, RUN, suite


async def test_gates_are_listed_shown_and_answered(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        _, listed, _ = await run("gates", "list", "--own", "--risk", "high", "--agent", "clerk", url=facade.url)
        _, shown, _ = await run("gates", "show", RUN, GATE.gate_id, url=facade.url)
        at = ("gates", "answer", RUN, GATE.gate_id)
        approved = await run(*at, "approve", "--note", "be quick", url=facade.url)
        edited = await run(*at, '{"decision": "edit", "arguments": {"amount": 1}}', url=facade.url)
        refused = await run("gates", "answer", RUN, "t_none", "reject", url=facade.url)
        wrong = [await run(*at, *rest, url=facade.url) for rest in (["maybe"], ["{}", "--note", "x"])]
    asked, _, first, second, _ = facade.script.requests
    assert asked == gates_pb2.ListGatesRequest(scope="own", risk="high", agent_key="clerk", page_size=50)
    row = listed.decode().split("  ")
    assert (row[0], row[1], row[3]) == (RUN, GATE.gate_id, "approval")
    assert row[4] == "pay of clerk for ada (high risk: it costs)\n"
    assert json.loads(shown)["arguments"] == {"amount": 12345678901234567890}
    assert (approved[0], edited[0], approved[1]) == (0, 0, b"accepted: as it is\n")
    assert json.loads(first.payload) == {"decision": "approve", "note": "be quick"}
    assert json.loads(second.payload) == {"decision": "edit", "arguments": {"amount": 1}}
    assert (refused[0], refused[1]) == (1, b"unmatched: as it is\n")
    assert [result[0] for result in wrong] == [2, 2]
