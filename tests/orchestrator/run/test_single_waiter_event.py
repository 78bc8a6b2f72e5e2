"""A flag: set before and during a wait, cleared, left by a waiter that is cancelled."""

from __future__ import annotations

import asyncio

import pytest

from services.orchestrator.run.single_waiter_event import SingleWaiterEvent


async def test_one_that_is_set_is_not_waited_for() -> None:
    flag = SingleWaiterEvent()
    flag.set()
    flag.set()
    async with asyncio.timeout(50):
        await flag.wait()
        await flag.wait()


async def test_setting_it_wakes_who_waits_and_clearing_it_makes_the_next_one_wait() -> None:
    flag = SingleWaiterEvent()
    waiting = asyncio.create_task(flag.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    flag.set()
    async with asyncio.timeout(50):
        await waiting
    flag.clear()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await flag.wait()


async def test_a_waiter_that_was_cancelled_leaves_it_to_the_next() -> None:
    flag = SingleWaiterEvent()
    left = asyncio.create_task(flag.wait())
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.wait({left})
    waiting = asyncio.create_task(flag.wait())
    await asyncio.sleep(0)
    flag.set()
    async with asyncio.timeout(50):
        await waiting
