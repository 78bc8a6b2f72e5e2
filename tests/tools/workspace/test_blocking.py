"""Work in threads that outlives its caller's patience, and not what it uses."""

import asyncio
import threading

import pytest

from services.tools.workspace.file_work import run_to_end


async def test_a_cancelled_caller_waits_for_the_work_however_often_it_is_cancelled() -> None:
    may_end, ended = threading.Event(), list[str]()

    def work() -> None:
        may_end.wait(5)
        ended.append("work")

    async def caller() -> None:
        try:
            await run_to_end(work)
        finally:
            ended.append("caller")

    async with asyncio.timeout(100):
        task = asyncio.create_task(caller())
        for _ in range(3):
            await asyncio.sleep(0.01)
            task.cancel()
        assert not ended
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert ended == ["work", "caller"]


async def test_a_result_and_an_error_come_out_as_they_are() -> None:
    assert await run_to_end(lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        await run_to_end(lambda: 1 // 0)
