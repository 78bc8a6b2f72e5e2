"""Following an AG-UI thread: its runs arrive in order, from any cursor, with their users' questions."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.sse import SseFrame, SseReader
from headrace.v1 import agent_pb2
from tests.support.facade.agui import fold, kinds
from tests.support.facade.followed import ENDED, LIVE, follow_from, script_chat
from tests.support.facade.scripted import CHAT, Script, Step, Suite, suite
from tests.support.timing import within

URL = "/agui/helper/connect"
PUBLISH = ["ag-ui"]


async def read_frames(facade: Suite, runs: int, cursor: str = "", messages: Sequence[Any] = ()) -> list[SseFrame]:
    """Read frames until `runs` runs have ended."""
    headers = {"Last-Event-ID": cursor} if cursor else {}
    reader, frames = SseReader(), list[SseFrame]()
    async with (
        within(50),
        facade.http.post(
            URL, json={"threadId": CHAT, "runId": "r-1", "messages": [*messages]}, headers=headers
        ) as response,
    ):
        assert response.status == 200, await response.text()
        async for chunk in response.content.iter_any():
            frames += reader.feed(chunk)
            if sum(b"RUN_FINISHED" in frame.data for frame in frames) == runs:
                break
    return frames


async def test_runs_of_a_thread_arrive_in_order_with_their_questions(tmp_path: Path) -> None:
    script = script_chat(*PUBLISH)
    async with suite(tmp_path, script) as facade:
        events = [json.loads(frame.data) for frame in await read_frames(facade, 2)]
    assert [item["runId"] for item in events if item["type"] == "RUN_STARTED"] == ["q-1", "q-1"]
    assert [item["delta"] for item in events if item.get("messageId") == "q-1_question" and "delta" in item] == [
        "hi",
        "hi",
    ]
    assert kinds(events).index("RUN_STARTED", 1) == kinds(events).index("RUN_FINISHED") + 1
    [request] = [item for item in script.requests if isinstance(item, agent_pb2.FollowRequest)]
    assert request == agent_pb2.FollowRequest(chat_id=CHAT, cursor="")


@pytest.mark.parametrize("steps", [LIVE, ENDED])
async def test_a_reader_can_resume_after_any_event_of_any_run(tmp_path: Path, steps: list[Step]) -> None:
    script = script_chat(*PUBLISH)
    async with suite(tmp_path, script) as facade:
        whole = await read_frames(facade, 2)
        for at, frame in enumerate(whole[:-1]):
            if not frame.id:
                continue
            read_so_far = whole[: at + 1]
            script.follows = [follow_from(frame.id, steps)]
            open_runs = 2 - sum(b"RUN_FINISHED" in item.data for item in read_so_far)
            messages = [
                {"id": key, "role": "assistant", "content": value} for key, value in fold_frames(read_so_far).items()
            ]
            later_frames = await read_frames(facade, open_runs, frame.id, messages=messages)
            assert fold_frames([*read_so_far, *later_frames]) == fold_frames(whole), frame.id
            cursors = [item.cursor for item in script.requests if isinstance(item, agent_pb2.FollowRequest)]
            assert cursors[-1] == f"{frame.id.partition('.')[0]}.0"


def fold_frames(frames: Sequence[SseFrame]) -> dict[str, Any]:
    return fold([json.loads(frame.data) for frame in frames])


@pytest.mark.parametrize("cursor", ["3", "x", "1.2.3"])
async def test_an_invalid_cursor_is_refused(tmp_path: Path, cursor: str) -> None:
    headers = {"Last-Event-ID": cursor}
    async with (
        suite(tmp_path, Script(publish=PUBLISH)) as facade,
        facade.http.post(URL, json={"threadId": CHAT, "runId": "r-1", "messages": []}, headers=headers) as response,
    ):
        assert (response.status, (await response.json())["error"]["details"]["field"]) == (400, "Last-Event-ID")
