"""Chat completions of clients that were cut or away: chunks with ids, and what came after one."""

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.sse import SseFrame
from headrace.v1 import agent_pb2
from tests.support.facade.followed import ENDED, LIVE, SECOND, follow_from, number, script_chat
from tests.support.facade.openai_api import ANSWERED, FUNCTION, client
from tests.support.facade.scripted import CHAT, RUN, Script, Step, Suite, complete, delta, frames_of, opening, suite
from tests.support.timing import within

URL = "/v1/chat/completions"
ASK: dict[str, Any] = {
    **{"model": "helper", "messages": [{"role": "user", "content": "How warm?"}]},
    **{"stream": True, "metadata": {"chat_id": CHAT}},
}


async def read_frames(facade: Suite, **headers: str) -> list[SseFrame]:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    async with within(50), facade.http.post(URL, json=ASK, headers=given) as response:
        assert response.status == 200, await response.text()
        return await frames_of(response)


def fold(frames: list[SseFrame]) -> dict[str, str]:
    """What each run has said and how it has ended."""
    said: dict[str, str] = {}
    for frame in frames:
        if frame.data != b"[DONE]":
            chunk = json.loads(frame.data)
            [choice] = chunk["choices"]
            text = (choice["delta"].get("reasoning_content") or "") + (choice["delta"].get("content") or "")
            said[chunk["id"]] = (
                said.get(chunk["id"], "") + text + f"|{choice['finish_reason']}" * bool(choice["finish_reason"])
            )
    return said


@pytest.mark.parametrize("told", [LIVE, ENDED])
async def test_a_client_comes_back_after_any_chunk_of_any_run(tmp_path: Path, told: list[Step]) -> None:
    script = script_chat()
    async with suite(tmp_path, script) as facade:
        whole = await read_frames(facade, Last_Event_ID="0.0")
        assert fold(whole) == {f"chatcmpl-{run_id}": "HmI look.\n\n20 °C|stop" for run_id in (RUN, SECOND)}
        for at, frame in enumerate(whole[:-1]):
            script.follows = [follow_from(frame.id or "", told)]
            rest = await read_frames(facade, Last_Event_ID=frame.id or "")
            assert fold([*whole[: at + 1], *rest]) == fold(whole), frame.id
    assert not [one for one in script.requests if isinstance(one, agent_pb2.QueryRequest)]


async def test_a_question_that_is_resumable_goes_on_without_its_client(tmp_path: Path) -> None:
    script = script_chat()
    script.query = [*opening(), *LIVE[3:]]
    script.follows = [[*number(5, SECOND, LIVE), *number(10, RUN, LIVE)]]
    async with suite(tmp_path, script) as facade:
        frames = await read_frames(facade, Headrace_Resumable="true")
    assert fold(frames) == {f"chatcmpl-{RUN}": "HmI look.\n\n20 °C|stop"}
    assert frames[0].id == "10.5;0;2"
    [query] = [one for one in script.requests if isinstance(one, agent_pb2.QueryRequest)]
    assert (query.on_disconnect, query.message) == ("continue", "How warm?")


FUNCTION_TOOL = {"type": "function", "function": FUNCTION}
RESUMABLE, LATER = {"Headrace-Resumable": "true"}, {"Last-Event-ID": "0.0"}


@pytest.mark.parametrize(
    ("fields", "headers", "field"),
    [
        ({}, {"Last-Event-ID": "x"}, "Last-Event-ID"),
        ({}, {"Last-Event-ID": "1.2;3"}, "Last-Event-ID"),
        ({"stream": False}, LATER, "stream"),
        ({"metadata": {}}, LATER, "metadata.chat_id"),
        ({"metadata": {}}, RESUMABLE, "metadata.chat_id"),
        ({"tools": [FUNCTION_TOOL]}, RESUMABLE, "tools"),
        ({"response_format": {"type": "json_object"}}, RESUMABLE, "response_format"),
    ],
)
async def test_what_cannot_be_followed_is_refused(
    tmp_path: Path, fields: Any, headers: dict[str, str], field: str
) -> None:
    async with (
        suite(tmp_path, Script()) as facade,
        facade.http.post(URL, json=ASK | fields, headers=headers) as response,
    ):
        assert (response.status, (await response.json())["error"]["param"]) == (400, field)
        assert not [one for one in facade.script.requests if isinstance(one, agent_pb2.QueryRequest)]


STAGES = [("plan", "finish"), ("summary", "THE SUMMARY")]


def speak() -> list[Step]:
    """A run as it is streamed: the planner's words, then the answer."""
    steps = opening()
    for place, (stage, text) in enumerate(STAGES, start=1):
        block_id, seq = f"{RUN}_c_{place}", 1 + 3 * place
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
