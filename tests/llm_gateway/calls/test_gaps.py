"""The pace of an answer: the gaps that a caller sees are the provider's.

Within 20 ms for the median: buffering or merging shows as gaps of nothing and of two, and the noise of a busy machine,
which is the benchmark's to measure, does not fail a good gateway.
"""

import asyncio
from itertools import pairwise
from statistics import median

from headrace.streams import reading
from tests.support.llm_gateway.gateway import Asking

CHUNKS = 40
PACE_S = 0.1


async def test_forty_chunks_over_four_seconds_keep_their_gaps(asking: Asking) -> None:
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
