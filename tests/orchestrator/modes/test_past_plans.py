"""Plans of earlier runs are stored with the user's facts and offered to the planner of a similar question."""

import asyncio
from typing import Any

import pytest

from headrace.client import Client
from headrace.errors import FactsFull
from headrace.v1 import llm_pb2, memory_pb2
from tests.support.orchestrator import MODEL, Serve, Suite, ask_for, plans, read, run_of
from tests.support.orchestrator.answerers import as_member
from tests.support.orchestrator.crashes import Crashes, restart
from tests.support.orchestrator.events import ask_until
from tests.support.orchestrator.plans import Reply, text_of
from tests.support.orchestrator.steps import Step, answer
from tests.support.order import Event
from tests.support.waiting import wait_until

KEYS = {"ada": "acme/ada", "bob": "acme/bob"}

TRIP, TRIP_AGAIN = "Plan a weekend trip to Rome for two people", "Organise a trip to Rome for two people"
MOVE, MOVE_AGAIN = "Move the customer database to PostgreSQL", "How do we move our customer database to PostgreSQL?"
CARD, TAXES = "Write a birthday card for my boss", "Explain how taxes on books work"

AGENT = plans.agent(recallPlans=True)
OFFERED = "A similar task of this user was done with this plan:\n"
OFFER_OF_TRIP = "1. find a train\n2. book a hotel\nUse it as a start if it fits."


def make_planning_model(*tasks: Any, **given: Any) -> Reply:
    """Return a model that plans these tasks, whatever the question."""

    def plan(request: llm_pb2.ChatRequest) -> list[Step]:
        return plans.add(*tasks)

    return plans.model(plans.add(*tasks), **{"planner": plan} | given)


def fail(request: llm_pb2.ChatRequest) -> list[Step]:
    return plans.update(request, "failed" if plans.task_of(request) == "book it" else "completed")


def report_without_update(request: llm_pb2.ChatRequest) -> list[Step]:
    return answer("I forgot it")


PLAN_TRIP = make_planning_model("find a train", "book a\nhotel")


def list_offers(suite: Suite) -> list[str]:
    """Return the plan offered in each request of a planner without tasks; other requests must not offer one."""
    offers: list[str] = []
    for request in suite.llm.requests:
        offered = [text.partition(OFFERED)[2] for message in request.messages if OFFERED in (text := text_of(message))]
        if request.stage == "plan" and not any(message.tool_calls for message in request.messages):
            offers += offered or [""]
        else:
            assert not offered
    return offers


async def ask(
    suite: Suite, message: str, reply: Reply = PLAN_TRIP, client: Client | None = None, agent_key: str = "react"
) -> str:
    """Ask in a new chat, and return what the planner was offered."""
    suite.llm.requests.clear()
    suite.llm.reply = reply
    events = await ask_for(client or suite.client, message, agent_key=agent_key)
    assert events[-1]["type"] == "run.complete"
    plans.check_pairs(suite)
    return "".join(list_offers(suite))


async def list_plans(client: Client, count: int) -> list[memory_pb2.Fact]:
    """Wait until this number of plans of the user are stored, which happens after their run; return them."""
    async with asyncio.timeout(100):
        while True:
            stored = [fact async for fact in client.export_facts() if fact.scope == "plan"]
            if len(stored) >= count:
                return stored
            await asyncio.sleep(0.01)


async def test_only_the_plan_of_a_similar_question_is_offered(serve: Serve) -> None:
    async with serve(**AGENT) as suite:
        assert await ask(suite, TRIP) == ""
        await list_plans(suite.client, 1)
        assert await ask(suite, MOVE, make_planning_model("dump", "restore")) == ""
        trip, move = await list_plans(suite.client, 2)
        assert (trip.text, move.text) == (f"{TRIP}\nfind a train\nbook a hotel", f"{MOVE}\ndump\nrestore")
        assert (trip.agent_key, trip.source.run_id != "") == ("react", True)
        assert (await ask(suite, TRIP_AGAIN)).startswith(OFFER_OF_TRIP)
        assert (await ask(suite, MOVE_AGAIN)).startswith("1. dump\n2. restore\nUse it")
        assert await ask(suite, CARD) == await ask(suite, TAXES) == ""
        assert list((await suite.client.facts()).facts) == []


async def test_a_plan_is_offered_only_to_its_user_by_its_agent(serve: Serve) -> None:
    others = {"other": {"modelConfig": MODEL, **AGENT}, "without": {"modelConfig": MODEL, **plans.agent()}}
    async with serve(keys=KEYS, beside=others, **AGENT) as suite, as_member(suite, suite.address, "bob") as bob:
        await ask(suite, TRIP)
        await list_plans(suite.client, 1)
        assert await ask(suite, TRIP_AGAIN, client=bob) == ""
        assert await ask(suite, TRIP_AGAIN, agent_key="other") == ""
        recalled = len(suite.memory.recalls)
        assert await ask(suite, TRIP_AGAIN, agent_key="without") == ""
        assert len(suite.memory.recalls) == recalled
        assert (await ask(suite, TRIP)).startswith(OFFER_OF_TRIP)
        stored = await list_plans(suite.client, 2)
        assert sorted(plan.agent_key for plan in stored) == ["other", "react"]


@pytest.mark.parametrize("reporter", [fail, report_without_update])
async def test_a_plan_that_was_not_completed_is_not_stored(serve: Serve, reporter: Reply) -> None:
    async with serve(**AGENT) as suite:
        await ask(suite, TRIP, make_planning_model("find a train", "book it", report=reporter))
        await ask(suite, MOVE)
        assert [plan.text.partition("\n")[0] for plan in await list_plans(suite.client, 1)] == [MOVE]


async def test_the_parts_of_a_split_task_are_not_stored(serve: Serve) -> None:
    def split(request: llm_pb2.ChatRequest) -> list[Step]:
        text = plans.last_text(request)
        if "_plan_restate_tasks_" in text:
            open_tasks = [line for line in text.splitlines() if line.startswith("- ")]
            return plans.restate(*({"taskId": line[2:10], "description": line[12:]} for line in open_tasks))
        if "is to be split" in text:
            return plans.add("ask for prices", call_id="half")
        return plans.add({"description": "book a hotel", "composite": True}, "pack")

    async with serve(**plans.agent("RECURSIVE", recallPlans=True)) as suite:
        await ask(suite, TRIP, make_planning_model(planner=split))
        (stored,) = await list_plans(suite.client, 1)
        assert stored.text == f"{TRIP}\nbook a hotel\npack"


async def test_both_the_draft_and_the_final_plan_get_the_offer(serve: Serve) -> None:
    def plan(request: llm_pb2.ChatRequest) -> list[Step]:
        return answer("first this") if request.tool_choice == "none" else plans.add("find a train", "book a hotel")

    async with serve(**plans.agent(deep=True, recallPlans=True)) as suite:
        await ask(suite, TRIP, make_planning_model(planner=plan))
        await list_plans(suite.client, 1)
        await ask(suite, TRIP_AGAIN, make_planning_model(planner=plan))
        assert [offer.startswith(OFFER_OF_TRIP) for offer in list_offers(suite)] == [True, True]


async def test_a_long_question_and_a_long_plan_are_stored_shortened(serve: Serve) -> None:
    async with serve(**AGENT) as suite:
        await ask(suite, "Rome 🏛️ " * 1000, make_planning_model(*("🏛️" * 500 for _ in range(5))))
        (stored,) = await list_plans(suite.client, 1)
        question, *tasks = stored.text.split("\n")
        assert len(question) <= 500
        assert 1000 < len("\n".join(tasks)) <= 1500


async def test_a_run_completes_though_memory_refuses_its_plan(serve: Serve) -> None:
    async with serve(**AGENT) as suite:
        suite.memory.facts_error = FactsFull("no facts today")
        assert await ask(suite, TRIP) == ""
        await wait_until(lambda: len(suite.memory.remembered) == 1)
        suite.memory.facts_error = None
        assert await ask(suite, TRIP_AGAIN) == ""
        assert len(await list_plans(suite.client, 1)) == 1


async def test_a_resumed_run_gets_no_offer(serve: Serve) -> None:
    async with serve(**AGENT) as suite:
        await ask(suite, TRIP)
        await list_plans(suite.client, 1)
        crashes, events_before = Crashes(suite), list[Event]()
        crashes.kill_at(1)
        suite.llm.requests.clear()
        async with restart(suite) as client:
            events_before = await ask_until(client, "run.start", TRIP_AGAIN, agent_key="react")
            async with asyncio.timeout(100):
                while not list_offers(suite):
                    await asyncio.sleep(0.01)
        crashes.kill_at(-1)
        assert list_offers(suite)[0].startswith(OFFER_OF_TRIP)
        suite.llm.requests.clear()
        async with restart(suite) as client:
            events_after = await read(client, run_of(events_before), events_before[-1]["seq"])
        assert events_after[-1]["type"] == "run.complete"
        assert list_offers(suite) == [""]
