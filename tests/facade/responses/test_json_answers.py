"""One JSON answer for a run, folded from the events of the cases that every reader is held to."""

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.event_json import parse_event
from headrace.v1 import agent_pb2
from tests.support.facade.scripted import RUN, Script, answering, delta, suite

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "fold_cases.json").read_text())
ANSWERED = [case for case in CASES if (case["state"]["end"] or {}).get("type") == "run.complete"]


@pytest.mark.parametrize("case", ANSWERED, ids=[case["name"] for case in ANSWERED])
async def test_the_content_is_the_answer_of_the_case(case: dict[str, Any], tmp_path: Path) -> None:
    events = [parse_event(json.dumps(event, ensure_ascii=False)) for event in case["events"]]
    async with (
        suite(tmp_path, script=Script(query=events)) as facade,
        facade.http.post("/api/query", json={"message": "Hello?", "stream": False}) as response,
    ):
        state = case["state"]
        data = (await response.json())["data"]
        assert (data["runId"], data["chatId"], data["content"]) == (state["runId"], state["chatId"], state["answer"])


async def test_an_answer_of_a_form_is_wanted_and_given_as_json(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"at": {"const": 0.1}}}
    end = agent_pb2.RunComplete(run_id=RUN, finish_reason="stop", output='{"at": 0.1}')
    steps = [*answering('{"at": 0.1}')[:-1], delta(9, run_complete=end)]
    query = {"message": "Where?", "outputFormat": {"schema": schema, "name": "place"}, "toolChoice": "none"}
    async with suite(tmp_path, script=Script(query=steps)) as facade:
        async with facade.http.post("/api/query", json=query | {"stream": False}) as response:
            data = (await response.json())["data"]
        async with facade.http.post("/api/query", json=query) as response:
            frames = (await response.text()).split("\n\n")
        requests = facade.script.requests
    assert data["output"] == {"at": 0.1}
    assert '"output":{"at": 0.1}' in next(frame for frame in frames if "run.complete" in frame)
    for request in requests:
        assert json.loads(request.output_format.schema) == schema
        assert (request.output_format.name, request.tool_choice) == ("place", "none")
