"""Calls of one moment: in whose turn they are let in, and that those who come alone do not wait."""

from __future__ import annotations

import asyncio

from services.runtime.turnstile import PASSES_MAX, Turnstile


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
