"""Simultaneous calls: whose turn it is to be admitted, and how few start at once; a lone call does not wait."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterator
from random import Random

from services.runtime.capacity import PASSES_MAX, Turnstile
from tests.support.scripted_llm import REQUEST, TEST_TIMEOUT_S, read, serving_script


async def enter(turnstile: Turnstile, tenant: str, entered: list[str]) -> None:
    await turnstile.pass_through(tenant)
    entered.append(tenant)


async def pass_turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_lone_call_does_not_wait() -> None:
    turnstile = Turnstile()
    for _ in range(3 * PASSES_MAX):
        passing = turnstile.pass_through("a")
        try:
            passing.send(None)
        except StopIteration:
            await pass_turns()
        else:
            raise AssertionError("it waits")


async def test_a_flood_of_one_tenant_waits_for_the_first_call_of_another() -> None:
    turnstile, entered = Turnstile(), list[str]()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for tenant in "a" * 2000 + "bbc":
            group.create_task(enter(turnstile, tenant, entered))
    assert len(entered) == 2003
    assert "".join(entered).startswith("a" * PASSES_MAX + "abcabaaa")


async def test_other_tasks_continue_while_a_flood_is_admitted() -> None:
    turnstile, entered = Turnstile(), list[str]()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for _ in range(100):
            group.create_task(enter(turnstile, "a", entered))
        count = 0
        while len(entered) < 100:
            await asyncio.sleep(0)
            assert len(entered) - count <= PASSES_MAX
            count = len(entered)


async def test_few_calls_start_at_once_even_if_new_ones_arrive_meanwhile() -> None:
    turnstile, entered, draw = Turnstile(), list[str](), Random(1)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for _ in range(1000):
            for _ in range(draw.choice((0, 0, 1, 2, 3))):
                group.create_task(enter(turnstile, "a", entered))
            count = len(entered)
            await asyncio.sleep(0)
            assert len(entered) - count <= PASSES_MAX


async def test_a_call_cancelled_while_waiting_takes_no_turn() -> None:
    turnstile, entered = Turnstile(), list[str]()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        tasks = [group.create_task(enter(turnstile, "a", entered)) for _ in range(4 * PASSES_MAX)]
        await asyncio.sleep(0)
        for task in tasks[PASSES_MAX:-1]:
            task.cancel()
        await tasks[-1]
    assert len(entered) == PASSES_MAX + 1
    assert entered == ["a"] * len(entered)


class StartCounter:
    """A script that counts how many calls start to play it in each turn of the loop."""

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


async def test_few_streams_start_in_one_turn_of_all_services_of_a_process() -> None:
    starts = StartCounter()
    async with asyncio.timeout(TEST_TIMEOUT_S), serving_script(starts) as first, serving_script(starts) as second:
        counting = asyncio.create_task(starts.count_turns())
        answers: list[list[str]] = [[] for _ in range(300)]
        suites = itertools.cycle((first, second))
        calls = (read(suite.stub.StreamChat(REQUEST), answer) for suite, answer in zip(suites, answers, strict=False))
        await asyncio.gather(*calls)
        counting.cancel()
    assert answers == [["a"]] * 300
    assert max(starts.by_turn.values()) <= PASSES_MAX
