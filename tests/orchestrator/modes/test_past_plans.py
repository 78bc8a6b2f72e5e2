"""Plans of earlier tasks: kept with the user's facts, offered to the planner of a similar question of theirs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.v1 import llm_pb2, memory_pb2
from services.runtime.auth.identity import Identity, acting_as
from tests.support.orchestrator import Serve, Suite, plans
from tests.support.orchestrator.plans import Reply

TRIP, TRIP_AGAIN = "Plan a weekend trip to Rome for two people", "Organise a trip to Rome for two people"
MOVE, MOVE_AGAIN = "Move the customer database to PostgreSQL", "How do we move our customer database to PostgreSQL?"
OTHER = "Write a birthday card for my boss"
OFFERED = "A similar task of this user was done with this plan:"


def planner(*tasks: str, **given: Any) -> Reply:
    return plans.model(plans.add(*tasks), planner=lambda _: plans.add(*tasks), **given)


def offer_of(suite: Suite) -> str:
    """What the planner's first request of the last run offers; no other request may."""
    offers = [[text for message in request.messages if OFFERED in (text := plans.text_of(message))] for request in
              suite.llm.requests]  # fmt: skip
    assert not any(offers[1:])
    return offers[0][0] if offers[0] else ""


async def list_plans(suite: Suite, wanted: int) -> list[memory_pb2.Fact]:
    """The user's plans, once there are so many."""
    async with asyncio.timeout(100):
        while True:
            request = memory_pb2.ListFactsRequest(scope="plan")
            facts = list((await suite.memory.ListFacts(request, None)).facts)
            if len(facts) == wanted:
                return facts
            await asyncio.sleep(0.01)


async def ask(suite: Suite, message: str, reply: Reply, **fields: Any) -> str:
    """Ask in a new chat, and return what the planner was offered."""
    suite.llm.requests.clear()
    suite.chat_id = ""
    await plans.ask_checked(suite, reply, message=message, **fields)
    return offer_of(suite)


async def test_the_plan_of_a_similar_task_is_offered_and_of_another_none(serve: Serve) -> None:
    async with serve(**plans.agent(recallPlans=True)) as suite:
        assert await ask(suite, TRIP, planner("find a train", "book a\nhotel")) == ""
        await list_plans(suite, 1)
        assert await ask(suite, MOVE, planner("dump", "restore")) == ""
        kept = await list_plans(suite, 2)
        assert {fact.text for fact in kept} == {f"{TRIP}\nfind a train\nbook a hotel", f"{MOVE}\ndump\nrestore"}
        assert all(fact.source.run_id for fact in kept)
        assert "1. find a train\n2. book a hotel\nUse it" in await ask(suite, TRIP_AGAIN, planner("walk"))
        assert "1. dump\n2. restore\nUse it" in await ask(suite, MOVE_AGAIN, planner("walk"))
        assert await ask(suite, OTHER, planner("walk")) == ""
