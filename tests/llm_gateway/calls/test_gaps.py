"""The pace of an answer: a caller sees the same gaps between deltas as the provider sent.

The median may differ by 20 ms. Buffering or merging would show as gaps of zero and of twice the length, while the noise
of a busy machine, which the benchmark measures, does not fail a good gateway.
"""

import asyncio
from itertools import pairwise
from statistics import median

from headrace.streams import reading
from tests.support.llm_gateway.gateway import Asking

CHUNKS = 40
PACE_S = 0.1


async def test_chunks_arrive_with_the_providers_gaps_between_them(asking: Asking) -> None:
    async with asking() as gateway:
        request = gateway.request(model=f"bench-{CHUNKS}x{PACE_S * 1000:.0f}ms")
        loop, at_s = asyncio.get_running_loop(), list[float]()
        async with reading(gateway.llm.StreamChat(request, timeout=150)) as replies:
            async for delta in replies:
                if delta.content:
                    at_s.append(loop.time())
    off_s = [abs(later - earlier - PACE_S) for earlier, later in pairwise(at_s)]
    assert len(at_s) == CHUNKS
    assert median(off_s) < 0.02
