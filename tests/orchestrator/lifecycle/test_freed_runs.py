"""An ended run is freed at once: what a collection had to find would stand in every stream's way when it came."""

from __future__ import annotations

import asyncio
import gc

from services.orchestrator.run.answers.answer import Answer
from services.orchestrator.run.run import Run
from services.orchestrator.run.scope import Scope
from tests.support.orchestrator import Serve
from tests.support.orchestrator.steps import answer, call, finish, reasoning
from tests.support.timing import within

TURNS = reasoning("hm") + call("look", '{"at":1}') + finish("tool_calls"), answer("All ", "good.")


def count_objects() -> int:
    return sum(isinstance(one, Run | Scope | Answer) for one in gc.get_objects())


async def test_ended_runs_are_freed_without_a_collection(serve: Serve) -> None:
    gc.collect()
    before = count_objects()
    gc.disable()
    try:
        async with serve(*TURNS) as suite:
            await suite.ask()
            async with within(5.0):
                while count_objects() > before:
                    await asyncio.sleep(0.01)
    finally:
        gc.enable()
