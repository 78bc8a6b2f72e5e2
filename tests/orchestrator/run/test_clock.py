"""A run's time: charged while something works, standing while everything waits for people."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

from services.orchestrator.run.control.clock import Clock
from tests.support.timing import within


async def test_time_stands_while_everything_waits() -> None:
    clock = Clock(10.0)
    with clock.aside(), clock.working(), clock.waiting():
        before = clock.left_s
        await asyncio.sleep(0.05)
        assert clock.left_s == before
    await asyncio.sleep(0.02)
    assert clock.left_s < before - 0.01


async def test_time_goes_on_while_another_call_works() -> None:
    clock = Clock(10.0)
    with clock.aside(), clock.working(), clock.working(), clock.waiting():
        before = clock.left_s
        await asyncio.sleep(0.05)
        assert clock.left_s < before - 0.03
        with clock.waiting():
            before = clock.left_s
            await asyncio.sleep(0.05)
            assert clock.left_s == before


async def test_it_runs_out_after_the_time_that_was_not_waited() -> None:
    clock = Clock(0.15)
    rung = asyncio.Event()
    clock.watch(rung.set)
    async with asyncio.timeout(50):
        with clock.aside(), clock.working(), clock.waiting():
            await asyncio.sleep(0.4)
            assert not rung.is_set()
        started = asyncio.get_running_loop().time()
        async with within(1.0):
            await rung.wait()
    assert asyncio.get_running_loop().time() - started > 0.05
    assert clock.left_s == 0.0


async def test_time_stands_while_a_sub_agents_call_waits_and_goes_on_while_a_sibling_thinks() -> None:
    clock = Clock(10.0)
    with ExitStack() as sub_agents:
        for entered in (clock.aside(), clock.working(), clock.working()):
            sub_agents.enter_context(entered)
        with clock.aside(), clock.working(), clock.waiting():  # the first one's call
            before = clock.left_s
            await asyncio.sleep(0.05)
            assert clock.left_s < before - 0.03
            with clock.aside(), clock.working(), clock.waiting():  # the second one's
                before = clock.left_s
                await asyncio.sleep(0.05)
                assert clock.left_s == before
