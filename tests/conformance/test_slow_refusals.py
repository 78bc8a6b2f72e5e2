"""Refusals so late that the response has started: only heartbeats have been sent, and the caller knows no run id."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from headrace.errors import BY_REASON, CredentialEnded, HeadraceError, NotFound, OutOfRange, Overloaded, QueueFull
from headrace.sse import SseFrame
from tests.support.facade.fronts import Front, Timing
from tests.support.facade.scripted import RUN, Script, Suite, read_all_frames, suite

ASK = {"message": "hi"}
SLOW_S = 0.05
IMPATIENT = Timing(heartbeat_s=0.01)
NOTHING_SPENT = {"inputTokens": 0, "outputTokens": 0, "modelCalls": 0, "toolCalls": 0}
FULL = QueueFull("no place", retry_after_s=5, chatId="c")


async def query_with_error(facade: Suite, error: Exception) -> list[SseFrame]:
    facade.script.query = [SLOW_S, error]
    async with facade.http.post("/api/query", json=ASK) as response:
        assert (response.status, response.content_type) == (200, "text/event-stream")
        assert await response.content.readuntil(b"\n\n") == b": heartbeat\n\n"
        return await read_all_frames(response)


async def attach_with_error(facade: Suite, error: Exception, last_seq: int = 0) -> list[SseFrame]:
    facade.script.attaches = [[SLOW_S, error]]
    parameters = {"runId": RUN, "lastSeq": str(last_seq)}
    async with facade.http.get("/api/attach", params=parameters) as response:
        assert response.status == 200
        return await read_all_frames(response)


def find_error(frames: list[SseFrame]) -> Any:
    """Return the error of a stream that contains nothing else."""
    failed, done = frames
    assert (failed.event, done.data) == ("message", b"[DONE]")
    event = orjson.loads(failed.data)
    assert (failed.id, event["type"]) == (str(event["seq"]), "run.error")
    return event["error"]


async def test_a_late_refusal_of_a_query_is_a_run_error_and_done(tmp_path: Path, front: Front) -> None:
    async with suite(tmp_path, front=front, timing=IMPATIENT) as facade:
        failed, done = await query_with_error(facade, FULL)
    event = orjson.loads(failed.data)
    assert event.pop("timestamp") > 1_700_000_000_000
    assert event == {
        "seq": 1,
        "type": "run.error",
        "runId": "",
        "error": {"code": "QUEUE_FULL", "message": "no place", "retriable": True, "details": {"chatId": "c"}},
        "usage": NOTHING_SPENT,
    }
    assert (failed.id, failed.event, done.data) == ("1", "message", b"[DONE]")


async def test_each_reason_keeps_its_message(tmp_path: Path, front: Front) -> None:
    async with suite(tmp_path, front=front, timing=IMPATIENT) as facade:
        for cls in BY_REASON.values():
            frames = await query_with_error(facade, cls("it is so: 水 'x'"))
            if cls is CredentialEnded:  # it is sent in a last frame, as the run may continue
                [frame] = frames
                assert (frame.event, orjson.loads(frame.data)["error"]["code"]) == ("error", cls.reason)
                continue
            error = find_error(frames)
            assert error == {"code": cls.reason, "message": "it is so: 水 'x'", "retriable": cls.retriable}


async def test_a_bug_in_the_service_is_reported_without_its_text(tmp_path: Path, front: Front) -> None:
    async with suite(tmp_path, front=front, timing=IMPATIENT) as facade:
        error = find_error(await query_with_error(facade, KeyError("secret inside")))
    assert (error["message"], error["retriable"]) == ("internal error", False)


@pytest.mark.parametrize(("error", "seq"), [(NotFound("no such run"), 1), (OutOfRange("beyond"), 8)])
async def test_attaching_to_a_missing_run_is_a_run_error_after_the_last_seq(
    tmp_path: Path, front: Front, error: HeadraceError, seq: int
) -> None:
    async with suite(tmp_path, front=front, timing=IMPATIENT) as facade:
        frames = await attach_with_error(facade, error, seq - 1)
    assert find_error(frames)["code"] == error.reason
    event = orjson.loads(frames[0].data)
    assert (event["seq"], event["runId"]) == (seq, RUN)


@pytest.mark.parametrize("error", [Overloaded("moved"), KeyError("a bug inside")])
async def test_a_run_that_may_still_live_is_not_reported_as_failed(
    tmp_path: Path, front: Front, error: Exception
) -> None:
    async with suite(tmp_path, front=front, timing=IMPATIENT) as facade:
        assert await attach_with_error(facade, error) == []


async def test_a_late_refusal_is_counted_by_its_own_status(tmp_path: Path, front: Front) -> None:
    async with suite(tmp_path, Script(), front=front, timing=IMPATIENT) as facade:
        metric = 'headrace_facade_request_duration_seconds_count{route="/api/query",status="429"}'
        before = await _count(facade, metric)
        await query_with_error(facade, FULL)
        assert await _count(facade, metric) == before + 1


async def _count(facade: Suite, name: str) -> float:
    async with facade.http.get(facade.url.metrics) as response:
        lines = (await response.text()).splitlines()
    return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)), 0.0)
