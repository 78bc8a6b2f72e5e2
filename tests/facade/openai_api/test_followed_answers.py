"""Resuming chat completions: chunks have ids, and a client continues after the last one it received."""

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.sse import SseFrame
from headrace.v1 import agent_pb2
from tests.support.facade.followed import ENDED, LIVE, SECOND, follow_from, number, script_chat
from tests.support.facade.openai_api import ANSWERED, FUNCTION, client
from tests.support.facade.scripted import (
    CHAT,
    RUN,
    Script,
    Step,
    Suite,
    complete,
    delta,
    opening,
    read_all_frames,
    suite,
)
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
        return await read_all_frames(response)


def fold(frames: list[SseFrame]) -> dict[str, str]:
    """Return each run's text and how it ended."""
    texts: dict[str, str] = {}
    for frame in frames:
        if frame.data != b"[DONE]":
            chunk = json.loads(frame.data)
            [choice] = chunk["choices"]
            text = (choice["delta"].get("reasoning_content") or "") + (choice["delta"].get("content") or "")
            texts[chunk["id"]] = (
                texts.get(chunk["id"], "") + text + f"|{choice['finish_reason']}" * bool(choice["finish_reason"])
            )
    return texts


@pytest.mark.parametrize("steps", [LIVE, ENDED])
async def test_a_client_can_resume_after_any_chunk_of_any_run(tmp_path: Path, steps: list[Step]) -> None:
    script = script_chat()
    async with suite(tmp_path, script) as facade:
        whole = await read_frames(facade, Last_Event_ID="0.0")
        assert fold(whole) == {f"chatcmpl-{run_id}": "HmI look.\n\n20 °C|stop" for run_id in (RUN, SECOND)}
        for at, frame in enumerate(whole[:-1]):
            script.follows = [follow_from(frame.id or "", steps)]
            later_frames = await read_frames(facade, Last_Event_ID=frame.id or "")
            assert fold([*whole[: at + 1], *later_frames]) == fold(whole), frame.id
    assert not [request for request in script.requests if isinstance(request, agent_pb2.QueryRequest)]


async def test_a_resumable_run_continues_without_its_client(tmp_path: Path) -> None:
    script = script_chat()
    script.query = [*opening(), *LIVE[3:]]
    script.follows = [[*number(5, SECOND, LIVE), *number(10, RUN, LIVE)]]
    async with suite(tmp_path, script) as facade:
        frames = await read_frames(facade, Headrace_Resumable="true")
    assert fold(frames) == {f"chatcmpl-{RUN}": "HmI look.\n\n20 °C|stop"}
    assert frames[0].id == "10.5;0;2"
    [query] = [request for request in script.requests if isinstance(request, agent_pb2.QueryRequest)]
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
async def test_an_invalid_resume_request_is_refused(
    tmp_path: Path, fields: Any, headers: dict[str, str], field: str
) -> None:
    async with (
        suite(tmp_path, Script()) as facade,
        facade.http.post(URL, json=ASK | fields, headers=headers) as response,
    ):
        assert (response.status, (await response.json())["error"]["param"]) == (400, field)
        assert not [request for request in facade.script.requests if isinstance(request, agent_pb2.QueryRequest)]


STAGES = [("plan", "finish"), ("summary", "THE SUMMARY")]


def make_streamed_run() -> list[Step]:
    """Return a run as it is streamed: the planner's text, then the answer."""
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


def make_recalled_run() -> list[Step]:
    """Return the same run as it is read later, in snapshots."""
    snapshots = [
        agent_pb2.ContentSnapshot(
            content_id=f"{RUN}_c_{number}", run_id=RUN, text=text, stage=stage, is_answer=stage == "summary"
        )
        for number, (stage, text) in enumerate(STAGES, start=1)
    ]
    return [*opening(), *(delta(6 + 3 * at, content_snapshot=past) for at, past in enumerate(snapshots)), complete(10)]


@pytest.mark.parametrize("steps", [make_streamed_run(), make_recalled_run()], ids=["live", "later"])
async def test_the_answer_is_the_text_of_the_last_stage(tmp_path: Path, steps: list[Step]) -> None:
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
