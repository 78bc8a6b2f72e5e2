"""Answers that are relied on for a while."""

from __future__ import annotations

import pytest

from headrace.errors import Overloaded
from services.orchestrator.peers.ttl_cache import ANSWERS_MAX, TtlCache


class Source:
    """Says how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self) -> list[int]:
        self.asked += 1
        return [self.asked]


async def test_a_fresh_answer_is_not_asked_for_again_and_an_old_one_is() -> None:
    source, fresh, old = Source(), TtlCache[str, list[int]](60), TtlCache[str, list[int]](0)
    assert [await fresh.get_or_ask("a", source) for _ in range(3)] == [[1], [1], [1]]
    assert await fresh.get_or_ask("b", source) == [2]
    assert [await old.get_or_ask("a", source) for _ in range(2)] == [[3], [4]]


async def test_an_empty_answer_and_an_error_are_not_relied_on() -> None:
    async def nothing() -> list[int]:
        return []

    async def refused() -> list[int]:
        raise Overloaded("no")

    fresh = TtlCache[str, list[int]](60)
    assert await fresh.get_or_ask("a", nothing) == []
    with pytest.raises(Overloaded):
        await fresh.get_or_ask("a", refused)
    assert await fresh.get_or_ask("a", Source()) == [1]


async def test_the_last_answers_are_kept() -> None:
    source, fresh = Source(), TtlCache[int, list[int]](60)
    for question in range(ANSWERS_MAX + 1):
        await fresh.get_or_ask(question, source)
    assert await fresh.get_or_ask(1, source) == [2]
    assert await fresh.get_or_ask(0, source) == [ANSWERS_MAX + 2]
