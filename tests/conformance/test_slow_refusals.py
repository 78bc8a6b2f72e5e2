"""What is refused so late that the answer has begun: only heartbeats have been sent, and the caller knows no run."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from headrace.errors import BY_REASON, CredentialEnded, HeadraceError, NotFound, OutOfRange, Overloaded, QueueFull
from headrace.sse import SseFrame
from tests.support.facade.fronts import Front, Timing
from tests.support.facade.scripted import RUN, Script, Suite, frames_of, suite

ASK = {"message": "hi"}
SLOW_S = 0.05
IMPATIENT = Timing(heartbeat_s=0.01)
NOTHING_SPENT = {"inputTokens": 0, "outputTokens": 0, "modelCalls": 0, "toolCalls": 0}
FULL = QueueFull("no place", retry_after_s=5, chatId="c")


async def _asked(facade: Suite, error: Exception) -> list[SseFrame]:
    facade.script.query = [SLOW_S, error]
    async with facade.http.post("/api/query", json=ASK) as response:
        assert (response.status, response.content_type) == (200, "text/event-stream")
        assert await response.content.readuntil(b"\n\n") == b": heartbeat\n\n"
        return await frames_of(response)


async def _attached(facade: Suite, error: Exception, last_seq: int = 0) -> list[SseFrame]:
    facade.script.attaches = [[SLOW_S, error]]
    parameters = {"runId": RUN, "lastSeq": str(last_seq)}
    async with facade.http.get("/api/attach", params=parameters) as response:
        assert response.status == 200
        return await frames_of(response)


def _error_of(frames: list[SseFrame]) -> Any:
    """Of a stream that says nothing else."""
    failed, done = frames
    assert (failed.event, done.data) == ("message", b"[DONE]")
    event = orjson.loads(failed.data)
    assert (failed.id, event["type"]) == (str(event["seq"]), "run.error")
    return event["error"]


async def test_a_late_refusal_of_a_query_is_a_run_error_and_done(tmp_path: Path, front: Front) -> None:
    async with suite(tmp_path, front=front, timing=IMPATIENT) as facade:
        failed, done = await _asked(facade, FULL)
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


async def test_each_reason_has_its_own_words(tmp_path: Path, front: Front) -> None:
    async with suite(tmp_path, front=front, timing=IMPATIENT) as facade:
        for cls in BY_REASON.values():
            frames = await _asked(facade, cls("it is so: 水 'x'"))
            if cls is CredentialEnded:  # a last frame, as the run may go on
                [frame] = frames
                assert (frame.event, orjson.loads(frame.data)["error"]["code"]) == ("error", cls.reason)
                continue
            error = _error_of(frames)
            assert error == {"code": cls.reason, "message": "it is so: 水 'x'", "retriable": cls.retriable}


async def test_a_bug_behind_it_is_told_without_its_words(tmp_path: Path, front: Front) -> None:
    async with suite(tmp_path, front=front, timing=IMPATIENT) as facade:
        error = _error_of(await _asked(facade, KeyError("secret inside")))
    assert (error["message"], error["retriable"]) == ("internal error", False)


@pytest.mark.parametrize(("error", "seq"), [(NotFound("no such run"), 1), (OutOfRange("beyond"), 8)])
async def test_attaching_to_what_is_not_there_is_a_run_error_behind_the_last_seq(
    tmp_path: Path, front: Front, error: HeadraceError, seq: int
) -> None:
    async with suite(tmp_path, front=front, timing=IMPATIENT) as facade:
        frames = await _attached(facade, error, seq - 1)
    assert _error_of(frames)["code"] == error.reason
    event = orjson.loads(frames[0].data)
    assert (event["seq"], event["runId"]) == (seq, RUN)


@pytest.mark.parametrize("error", [Overloaded("moved"), KeyError("a bug inside")])
async def test_a_run_that_may_well_live_is_not_said_to_have_failed(
    tmp_path: Path, front: Front, error: Exception
) -> None:
    async with suite(tmp_path, front=front, timing=IMPATIENT) as facade:
        assert await _attached(facade, error) == []


async def test_it_is_counted_by_its_own_status(tmp_path: Path, front: Front) -> None:
    async with suite(tmp_path, Script(), front=front, timing=IMPATIENT) as facade:
        counted = 'headrace_facade_request_duration_seconds_count{route="/api/query",status="429"}'
        before = await _count(facade, counted)
        await _asked(facade, FULL)
        assert await _count(facade, counted) == before + 1


async def _count(facade: Suite, name: str) -> float:
    async with facade.http.get(facade.url.metrics) as response:
        lines = (await response.text()).splitlines()
    return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)), 0.0)
