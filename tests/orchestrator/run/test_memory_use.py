"""Memory that a run of a long chat uses: one request while the model answers, and no request after its end.

Garbage collection is off: a failed run must not need it, since it comes rarely in a process with many streams.
"""

from __future__ import annotations

import ctypes
import gc
import tracemalloc
from collections.abc import Iterator

import pytest

from headrace.errors import Overloaded
from headrace.v1 import llm_pb2
from tests.support.orchestrator.steps import ANSWER, BREAK, Step, content, finish
from tests.support.orchestrator.suite import Serve

TEXT = "x" * 1_000_000
WIDE = llm_pb2.ModelInfo(provider_key="scripted", model="m", context_window_tokens=10_000_000)

QUESTIONS = 4
"""Number of questions in the chat, each as long as TEXT."""


class _Mallinfo2(ctypes.Structure):
    _fields_ = [(f"field{index}", ctypes.c_size_t) for index in range(10)]


def measure_allocated() -> int:
    """Return the bytes of malloc's blocks in use (hblkhd and uordblks), those of protobuf's messages among them."""
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = _Mallinfo2
    statistics = libc.mallinfo2()
    return statistics.field4 + statistics.field7


@pytest.fixture(autouse=True)
def _without_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="only glibc counts its blocks")
async def test_a_run_keeps_one_request_in_memory_while_the_model_answers(serve: Serve) -> None:
    async with serve(*[ANSWER] * (QUESTIONS - 1), [*content("a"), 5.0, *finish()]) as suite:
        suite.llm.models = [WIDE]
        for _ in range(QUESTIONS - 1):
            await suite.ask(TEXT, "oneshot")
        kept_bytes = 0
        async with suite.client.ask(TEXT, agent_key="oneshot", chat_id=suite.chat_id) as deltas:
            async for delta in deltas:
                if delta.content_delta.delta:
                    kept_bytes = measure_allocated()
        kept_bytes -= measure_allocated()
    assert kept_bytes < 2 * QUESTIONS * len(TEXT)


@pytest.mark.parametrize("turns", [[[Overloaded("busy")]], [[BREAK], ANSWER]], ids=["fails", "is asked again"])
async def test_a_run_keeps_no_request_in_memory_after_its_end(serve: Serve, turns: list[list[Step]]) -> None:
    async with serve(*turns * QUESTIONS) as suite:
        suite.llm.models = [WIDE]
        tracemalloc.start()
        try:
            for _ in range(QUESTIONS):
                await suite.ask(TEXT, "oneshot")
            snapshot = tracemalloc.take_snapshot()
        finally:
            tracemalloc.stop()
    of_turns = snapshot.filter_traces([tracemalloc.Filter(True, "*/services/orchestrator/turn/*")])
    assert sum(statistic.size for statistic in of_turns.statistics("filename")) < len(TEXT) // 2
