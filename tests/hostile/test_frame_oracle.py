"""Our server accepts the same fuzzed frames and header blocks as `h2` and libnghttp2, except as decision 0016 explains.

`python -m trials fuzz` tries 50,000 cases.
"""

import os
from collections.abc import Awaitable, Callable
from random import Random

from services.runtime.calls.metadata import measure_headers
from services.runtime.http2.limits import HEADERS_BYTES_MAX
from trials.frames.cases import make_case
from trials.frames.ends import Verdict, has_odd_request, join_blocks, try_h2, try_nghttp2, try_ours
from trials.frames.nghttp2 import needs_nghttp2

CASES = int(os.environ.get("FRAME_CASES", "500"))
TAKEN_MIN, COMPARED_MIN = CASES // 10, CASES * 9 // 10

Pair = tuple[Verdict, Verdict]


async def compare(try_both: Callable[[list[bytes]], Awaitable[Pair]]) -> None:
    taken = compared = 0
    differences: list[str] = []
    for seed in range(CASES):
        ours, expected = await try_both(make_case(Random(seed)))
        if not ours.is_grpc or expected.is_explained or expected.refused_at in ours.ignored:
            continue
        if any(measure_headers(headers) > HEADERS_BYTES_MAX for headers in ours.requests.values()):
            continue  # taken to be refused by itself, where the oracles reset the stream or end the connection
        compared += 1
        taken += expected.refused_at is None
        if (ours.refused_at, ours.requests) != (expected.refused_at, expected.requests):
            differences.append(
                f"seed {seed}: ours ends at {ours.refused_at}, theirs at {expected.refused_at} {expected.why}"
            )
    assert not differences, "\n".join(differences[:20])
    assert taken > TAKEN_MIN, "the cases are worth something"
    assert compared > COMPARED_MIN


async def test_our_server_accepts_exactly_the_frames_h2_accepts() -> None:
    async def try_both(pieces: list[bytes]) -> Pair:
        return await try_ours(pieces), try_h2(pieces)

    await compare(try_both)


@needs_nghttp2
async def test_our_server_accepts_exactly_the_frames_nghttp2_accepts() -> None:
    async def try_both(pieces: list[bytes]) -> Pair:
        units = join_blocks(pieces)
        ours, theirs = await try_ours(units, until_reset=True), try_nghttp2(units)
        theirs.is_explained |= has_odd_request(ours)
        return ours, theirs

    await compare(try_both)
