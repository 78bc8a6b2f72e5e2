"""Memory retained of a large request: no text of it while the model answers, and nothing of a failed call.

Garbage collection is off: freeing a failed call must not depend on it, since it runs rarely in a busy process.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator

import pytest

from headrace.streams import reading
from tests.support.llm_gateway.conversation import SHORT
from tests.support.llm_gateway.gateway import Asking, text_message

TEXT = "x" * 400_000


@pytest.fixture
def _traced() -> Iterator[None]:
    gc.collect()
    gc.disable()
    tracemalloc.start()
    yield
    tracemalloc.stop()
    gc.enable()


pytestmark = pytest.mark.usefixtures("_traced")


def measure_kept() -> int:
    """Return the size of the live objects that the gateway's code has allocated."""
    snapshot = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/services/llm_gateway/*")])
    return sum(found.size for found in snapshot.statistics("filename"))


async def test_the_requests_text_is_freed_while_the_model_answers(asking: Asking) -> None:
    async with asking([{"steps": [{"content": ["a", "b"]}]}]) as gateway:
        request = gateway.request(text_message("user", TEXT))
        async with reading(gateway.llm.StreamChat(request, timeout=150)) as replies:
            async for delta in replies:
                if delta.content:
                    break
            assert measure_kept() < len(TEXT) // 2


@pytest.mark.parametrize("attempts", [1, 3])
@pytest.mark.parametrize("step", [{"status": 503}, {"status": 400}, {"raw": "data: {x\n\n"}], ids=str)
async def test_a_failed_call_frees_its_request(asking: Asking, step: dict[str, object], attempts: int) -> None:
    async with asking([{"steps": [step]}], retry={"maxAttempts": attempts}) as gateway:
        assert (await gateway.chat(text_message("user", TEXT))).error is not None
        assert measure_kept() < len(TEXT) // 2


async def test_a_failed_attempts_request_is_freed_while_a_fallback_answers(asking: Asking) -> None:
    script = [{"match": {"model": "sim-2"}, "steps": [{"content": ["a", "b"]}]}, {"steps": [{"stall": True}]}]
    async with asking(script, spare={}, fallback=["spare/sim-2"], **SHORT) as gateway:
        request = gateway.request(text_message("user", TEXT))
        async with reading(gateway.llm.StreamChat(request, timeout=150)) as replies:
            async for delta in replies:
                if delta.content:
                    break
            assert measure_kept() < len(TEXT) // 2
