"""Following an A2A context across its tasks."""

import json
from pathlib import Path

import pytest

from headrace.errors import NotFound
from headrace.sse import SseFrame, SseReader
from services.facade.a2a.protocol import CURSOR
from tests.support.facade.a2a import URL, fold, post, rpc
from tests.support.facade.followed import ENDED, LIVE, SECOND, follow_from, script_chat
from tests.support.facade.scripted import CHAT, RUN, Script, Step, Suite, suite
from tests.support.timing import within


async def read_frames(facade: Suite, tasks: int, cursor: str = "") -> list[SseFrame]:
    """Read frames until `tasks` tasks are completed."""
    headers = {"A2A-Extensions": CURSOR} | ({"Last-Event-ID": cursor} if cursor else {})
    reader, frames = SseReader(), list[SseFrame]()
    body = rpc("SubscribeToContext", {"contextId": CHAT})
    async with within(50), facade.http.post(URL, json=body, headers=headers) as response:
        assert response.status == 200, await response.text()
        async for chunk in response.content.iter_any():
            frames += reader.feed(chunk)
            if sum(b"TASK_STATE_COMPLETED" in frame.data for frame in frames) == tasks:
                break
    return frames


def fold_tasks(frames: list[SseFrame]) -> dict[str, tuple[str, str]]:
    events = [json.loads(frame.data) for frame in frames]
    tasks: dict[str, list[object]] = {}
    for event in events:
        [update] = event["result"].values()
        tasks.setdefault(update.get("taskId") or update["id"], []).append(event)
    return {task_id: fold(task_events) for task_id, task_events in tasks.items()}


@pytest.mark.parametrize("steps", [LIVE, ENDED])
async def test_a_reader_can_resume_after_any_event_of_any_task(tmp_path: Path, steps: list[Step]) -> None:
    script = script_chat("a2a")
    async with suite(tmp_path, script) as facade:
        whole = await read_frames(facade, 2)
        assert fold_tasks(whole) == dict.fromkeys((RUN, SECOND), ("20 °C", "TASK_STATE_COMPLETED"))
        for at, frame in enumerate(whole[:-1]):
            assert frame.id is not None
            assert frame.id in frame.data.decode()
            script.follows = [follow_from(frame.id, steps)]
            open_tasks = 2 - sum(b"TASK_STATE_COMPLETED" in sent_frame.data for sent_frame in whole[: at + 1])
            later_frames = await read_frames(facade, open_tasks, frame.id)
            assert not {sent_frame.id for sent_frame in later_frames} & {
                sent_frame.id for sent_frame in whole[: at + 1]
            }
            assert fold_tasks([*whole[: at + 1], *later_frames]) == fold_tasks(whole), frame.id


@pytest.mark.parametrize(("context_id", "cursor"), [("mine", "0.0"), (CHAT, "x"), (CHAT, "3")])
async def test_a_malformed_context_id_or_cursor_is_refused(tmp_path: Path, context_id: str, cursor: str) -> None:
    body = rpc("SubscribeToContext", {"contextId": context_id})
    async with (
        suite(tmp_path, Script(publish=["a2a"])) as facade,
        facade.http.post(URL, json=body, headers={"Last-Event-ID": cursor}) as response,
    ):
        assert (await response.json())["error"]["code"] == -32602


async def test_an_unknown_context_is_an_error(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(publish=["a2a"], follows=[[NotFound("the chat does not exist")]])) as facade:
        _, answer = await post(facade, rpc("SubscribeToContext", {"contextId": CHAT}))
    assert answer["error"]["code"] == -32001
