"""One JSON answer for a run, folded by each facade from the events of the cases that every reader is held to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.event_json import parse_event
from tests.conformance.fronts import Front
from tests.facade.scripted import Script, suite

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "fold_cases.json").read_text())
ANSWERED = [case for case in CASES if (case["state"]["end"] or {}).get("type") == "run.complete"]


@pytest.mark.parametrize("case", ANSWERED, ids=[case["name"] for case in ANSWERED])
async def test_the_content_is_the_answer_of_the_case(case: dict[str, Any], tmp_path: Path, front: Front) -> None:
    events = [parse_event(json.dumps(event, ensure_ascii=False)) for event in case["events"]]
    async with (
        suite(tmp_path, front=front, script=Script(query=events)) as facade,
        facade.http.post("/api/query", json={"message": "Hello?", "stream": False}) as response,
    ):
        state = case["state"]
        data = (await response.json())["data"]
        assert (data["runId"], data["chatId"], data["content"]) == (state["runId"], state["chatId"], state["answer"])
