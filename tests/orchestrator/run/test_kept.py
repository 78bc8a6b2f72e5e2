"""What a run keeps of a long chat: only its request while the model answers, none of its requests once it has ended.

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

ASKED = 4
"""Questions in the chat, of TEXT each."""


class _Mallinfo2(ctypes.Structure):
    _fields_ = [(f"field{index}", ctypes.c_size_t) for index in range(10)]


def measure_allocated() -> int:
    """Return the bytes of malloc's blocks in use (hblkhd and uordblks), those of protobuf's messages among them."""
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = _Mallinfo2
    found = libc.mallinfo2()
    return found.field4 + found.field7


@pytest.fixture(autouse=True)
def _uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="only glibc counts its blocks")
async def test_only_the_request_is_kept_while_the_model_answers(serve: Serve) -> None:
    async with serve(*[ANSWER] * (ASKED - 1), [*content("a"), 5.0, *finish()]) as suite:
        suite.llm.models = [WIDE]
        for _ in range(ASKED - 1):
            await suite.ask(TEXT, "oneshot")
        kept = 0
        async with suite.client.ask(TEXT, agent_key="oneshot", chat_id=suite.chat_id) as deltas:
            async for delta in deltas:
                if delta.content_delta.delta:
                    kept = measure_allocated()
        kept -= measure_allocated()
    assert kept < 2 * ASKED * len(TEXT)


@pytest.mark.parametrize("turns", [[[Overloaded("busy")]], [[BREAK], ANSWER]], ids=["fails", "is asked again"])
async def test_no_request_is_kept_once_the_run_has_ended(serve: Serve, turns: list[list[Step]]) -> None:
    async with serve(*turns * ASKED) as suite:
        suite.llm.models = [WIDE]
        tracemalloc.start()
        try:
            for _ in range(ASKED):
                await suite.ask(TEXT, "oneshot")
            snapshot = tracemalloc.take_snapshot()
        finally:
            tracemalloc.stop()
    of_turns = snapshot.filter_traces([tracemalloc.Filter(True, "*/services/orchestrator/turn/*")])
    assert sum(found.size for found in of_turns.statistics("filename")) < len(TEXT) // 2
