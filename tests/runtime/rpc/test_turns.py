"""Streams of one moment are not all begun in one turn of the loop, for which everything else would wait."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

from services.runtime.turnstile import PASSES_MAX
from tests.support.scripted_llm import REQUEST, TEST_TIMEOUT_S, read, serving_script


class Begun:
    """A script that knows how many calls began to play it in each turn of the loop."""

    def __init__(self) -> None:
        self.by_turn: Counter[int] = Counter()
        self._turn = 0

    def __iter__(self) -> Iterator[str]:
        self.by_turn[self._turn] += 1
        return iter(["a"])

    async def count_turns(self) -> None:
        while True:
            await asyncio.sleep(0)
            self._turn += 1


async def test_few_streams_begin_in_one_turn() -> None:
    begun = Begun()
    async with asyncio.timeout(TEST_TIMEOUT_S), serving_script(begun) as suite:
        counting = asyncio.create_task(begun.count_turns())
        answers: list[list[str]] = [[] for _ in range(300)]
        await asyncio.gather(*(read(suite.stub.StreamChat(REQUEST), answer) for answer in answers))
        counting.cancel()
    assert answers == [["a"]] * 300
    assert max(begun.by_turn.values()) <= PASSES_MAX
