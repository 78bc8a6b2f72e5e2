"""What a planner says is reasoning to OpenAI's clients; the answer is its run's last stage."""

from pathlib import Path

import pytest

from headrace.v1 import agent_pb2
from tests.support.facade.openai_api import ANSWERED, client
from tests.support.facade.scripted import RUN, Script, Step, complete, delta, opening

STAGES = [("plan", "finish"), ("summary", "THE SUMMARY")]


def speak() -> list[Step]:
    """A run as it is streamed: the planner's words, then the answer."""
    steps = opening()
    for number, (stage, text) in enumerate(STAGES, start=1):
        block_id, seq = f"{RUN}_c_{number}", 1 + 3 * number
        start = agent_pb2.ContentStart(content_id=block_id, run_id=RUN, stage=stage, is_answer=stage == "summary")
        steps += [
            delta(seq, content_start=start),
            delta(seq + 1, content_delta=agent_pb2.ContentDelta(content_id=block_id, delta=text)),
            delta(seq + 2, content_end=agent_pb2.ContentEnd(content_id=block_id)),
        ]
    return [*steps, complete(10)]


def recall() -> list[Step]:
    """The same run as it is given later."""
    snapshots = [
        agent_pb2.ContentSnapshot(
            content_id=f"{RUN}_c_{number}", run_id=RUN, text=text, stage=stage, is_answer=stage == "summary"
        )
        for number, (stage, text) in enumerate(STAGES, start=1)
    ]
    return [*opening(), *(delta(6 + 3 * at, content_snapshot=past) for at, past in enumerate(snapshots)), complete(10)]


@pytest.mark.parametrize("steps", [speak(), recall()], ids=["live", "later"])
async def test_an_answer_is_the_last_stage(tmp_path: Path, steps: list[Step]) -> None:
    async with client(tmp_path, Script(query=steps)) as (api, _):
        answer = await api.chat.completions.create(model="helper", messages=ANSWERED)  # pyright: ignore[reportArgumentType, reportCallIssue] - a list of dicts
        stream = await api.chat.completions.create(model="helper", messages=ANSWERED, stream=True)  # pyright: ignore[reportArgumentType, reportCallIssue] - a list of dicts
        deltas = [chunk.choices[0].delta async for chunk in stream]
        response = await api.responses.create(model="helper", input="hello")
    message = answer.choices[0].message
    assert (message.content, (message.model_extra or {})["reasoning_content"]) == ("THE SUMMARY", "finish")
    assert "".join(delta.content or "" for delta in deltas) == "THE SUMMARY"
    assert response.output_text == "THE SUMMARY"
    assert [item.type for item in response.output] == ["reasoning", "message"]
