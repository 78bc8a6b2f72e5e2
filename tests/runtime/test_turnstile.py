"""Calls of one moment: in whose turn they are let in, how few begin at once; those that come alone do not wait."""

import asyncio
from collections import Counter
from collections.abc import Iterator

from services.runtime.capacity import PASSES_MAX, Turnstile
from tests.support.scripted_llm import REQUEST, TEST_TIMEOUT_S, read, serving_script


async def enter(turnstile: Turnstile, tenant: str, entered: list[str]) -> None:
    await turnstile.pass_through(tenant)
    entered.append(tenant)


async def settled() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_who_comes_alone_does_not_wait() -> None:
    turnstile = Turnstile()
    for _ in range(3 * PASSES_MAX):
        passing = turnstile.pass_through("a")
        try:
            passing.send(None)
        except StopIteration:
            await settled()
        else:
            raise AssertionError("it waits")


async def test_a_flood_of_one_tenant_stands_behind_the_first_call_of_another() -> None:
    turnstile, entered = Turnstile(), list[str]()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for tenant in "a" * 2000 + "bbc":
            group.create_task(enter(turnstile, tenant, entered))
    assert len(entered) == 2003
    assert "".join(entered).startswith("a" * PASSES_MAX + "abcabaaa")


async def test_other_tasks_go_on_while_a_flood_is_let_in() -> None:
    turnstile, entered = Turnstile(), list[str]()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for _ in range(100):
            group.create_task(enter(turnstile, "a", entered))
        known = 0
        while len(entered) < 100:
            await asyncio.sleep(0)
            assert len(entered) - known <= PASSES_MAX
            known = len(entered)


async def test_who_leaves_while_waiting_takes_no_turn() -> None:
    turnstile, entered = Turnstile(), list[str]()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        tasks = [group.create_task(enter(turnstile, "a", entered)) for _ in range(4 * PASSES_MAX)]
        await asyncio.sleep(0)
        for task in tasks[PASSES_MAX:-1]:
            task.cancel()
        await tasks[-1]
    assert len(entered) == PASSES_MAX + 1
    assert entered == ["a"] * len(entered)


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
