"""Plans of earlier tasks: found by a similar question of the same user and agent, and kept apart from the user's
facts."""

import pytest

from headrace.errors import Held, InvalidRequest
from services.runtime.auth.identity import Identity
from tests.support.memory import people
from tests.support.memory.engines import Kept, Serve
from tests.support.memory.writing import Memory

pytestmark = pytest.mark.engines

ADA, BOB, EVE = Identity("acme", "ada"), Identity("acme", "bob"), Identity("globex", "eve")

TRIP = "Plan a weekend trip to Rome for two people with a budget of 600 euros"

REPHRASED = {
    TRIP: "Organise a trip to Rome for two, we have 800 euros for the weekend",
    "Compare the quarterly sales of our three shops and write a short report for the board": (
        "I need a report to the board that compares sales of our shops in the last quarter"
    ),
    "Migrate the customer database from MySQL to PostgreSQL without downtime": (
        "How do we migrate our customer database to PostgreSQL with no downtime?"
    ),
    "Prepare a job interview for a backend developer: questions, exercises and an evaluation sheet": (
        "Prepare an interview for a senior backend developer with questions and an exercise"
    ),
    "Organise a birthday party for my daughter who turns seven": (
        "My daughter's birthday party needs organising, she will be eight"
    ),
    "Review the literature on microplastics in drinking water and list the five most important studies": (
        "Which studies on microplastics in drinking water are important? Review the literature"
    ),
    "Erstelle einen Reiseplan für drei Tage in Lissabon mit Museen und Restaurants": (
        "Ein Reiseplan für vier Tage Lissabon, bitte mit guten Restaurants"
    ),
    "Plane den Umzug unseres Büros von Bonn nach Köln": "Unser Büro zieht um von Köln nach Bonn, plane den Umzug",
    "Find the cause of last night's outage of the payment service and propose fixes": (
        "Payment service had an outage this morning, find its cause and suggest a fix"
    ),
    "Write a blog post about our new mobile app and prepare posts for social media": (
        "Prepare a blog post and social media posts about the new app"
    ),
    "Book flights and a hotel for the conference in Vienna in May": (
        "I need a hotel and flights for the Vienna conference"
    ),
    "Analyse the logs of the web server and tell me why it was slow yesterday": (
        "Why was the web server so slow? Look at its logs"
    ),
    "Summarise the annual reports of Siemens and ABB and compare their margins": (
        "Compare margins of Siemens and ABB from their annual reports"
    ),
    "Draft a privacy policy for our online shop": ("We need a privacy policy for the shop, please draft it"),
    "Create a training plan for a half marathon in October": ("How should I train for a half marathon this autumn?"),
    "Find a cheaper electricity provider for my flat": ("Which electricity provider is cheapest for my apartment?"),
    "Refactor the login module and add unit tests": ("Clean up the login module, with unit tests"),
    "Erkläre die Unterschiede zwischen GmbH und UG und empfiehl eine Rechtsform": (
        "GmbH oder UG: welche Rechtsform empfiehlst du?"
    ),
    "Plan the menu and the shopping for Christmas dinner for eight people": (
        "Christmas dinner for six: suggest a menu and a shopping list"
    ),
    "Write unit tests for the billing service": ("Billing service lacks tests, write some"),
}

UNRELATED = (
    "What does the weather in Rome look like on Sunday?",
    "Write a Python script that renames files by date",
    "Plan our database backup for next year",
    "Prepare my tax return for last year",
    "Which restaurants in Berlin have a terrace?",
    "Compare three laptops for video editing and recommend one",
    "Translate this contract from German to English",
    "Wie viel kostet ein neues Dach?",
    "Write a birthday card for my boss",
    "Explain how a payment by card works",
    "Write a poem about autumn",
    "Compare Siemens trains with buses",
    "Which hotel in Rome has a pool?",
    "Add a dark mode to our shop",
    "Find the author of this quote",
    "How slow is a snail?",
    "Train a model for image search",
    "Draft an email to my landlord about the flat",
    "Create a logo for the conference",
    "Welche Steuern zahlt eine GmbH?",
)


async def keep_plan(memory: Memory, question: str, *tasks: str, agent: str = "planner", request_id: str = "") -> str:
    text = "\n".join([question, *(tasks or ("do it",))])
    return await memory.remember(text, request_id, scope="plan", agent_key=agent)


async def find_plan(memory: Memory, query: str, agent: str = "planner") -> str:
    """Return the question of the best plan; empty if none is found."""
    found = await memory.recall(query, scope="plan", agent_key=agent, limit=1)
    return found[0].partition("\n")[0] if found else ""


async def test_a_rephrased_task_finds_its_plan_and_an_unrelated_task_finds_none(memory: Memory) -> None:
    for question in REPHRASED:
        await keep_plan(memory, question)
    missed = [rephrased for question, rephrased in REPHRASED.items() if await find_plan(memory, rephrased) != question]
    wrong = [question for question in UNRELATED if await find_plan(memory, question)]
    assert len(missed) <= 1, missed
    assert len(wrong) <= 2, wrong


async def test_a_plan_is_found_by_its_question_but_not_by_its_tasks(memory: Memory) -> None:
    await keep_plan(memory, TRIP, "find museums", "book a hotel")
    assert await memory.recall("trip to Rome", scope="plan") == [f"{TRIP}\nfind museums\nbook a hotel"]
    assert await memory.recall("find museums", scope="plan") == []


async def test_a_plan_belongs_to_one_user_and_one_agent(memory: Memory) -> None:
    ada = memory.acting_as(ADA)
    await keep_plan(ada, TRIP)
    assert await find_plan(ada, TRIP) == TRIP
    assert await find_plan(ada, TRIP, agent="other") == ""
    for stranger in (BOB, EVE):
        assert await find_plan(memory.acting_as(stranger), TRIP) == ""
    for fields in ({"scope": "plan"}, {"agent_key": "planner"}):
        with pytest.raises(InvalidRequest, match="agentKey"):
            await ada.remember(TRIP, **fields)


async def test_plans_are_not_listed_among_the_users_facts(memory: Memory) -> None:
    await keep_plan(memory, TRIP)
    await memory.remember("likes Rome")
    for agent in ("", "planner"):
        assert [fact.text for fact in await memory.list_facts(agent_key=agent)] == ["likes Rome"]
        assert await memory.recall("the trip to Rome", agent_key=agent) == ["likes Rome"]
    assert [hit.excerpt for hit in await memory.search("Rome")] == ["likes Rome"]
    (listed,) = await memory.list_facts(scope="plan")
    assert (listed.scope, listed.agent_key, listed.text) == ("plan", "planner", f"{TRIP}\ndo it")
    assert len(await memory.export_facts()) == 2
    await memory.delete_fact(listed.fact_id)
    assert await find_plan(memory, TRIP) == ""


async def test_an_agent_keeps_the_newest_plan_for_each_question_and_at_most_fifty(serve: Serve) -> None:
    async with serve() as memory:
        for tasks in ("one", "two"):
            await keep_plan(memory, f"  {TRIP}", tasks, request_id=tasks)
        assert [fact.text for fact in await memory.list_facts(scope="plan")] == [f"{TRIP}\ntwo"]
        await keep_plan(memory, "other task", agent="other")
        for number in range(50):
            first = await keep_plan(memory, f"task number{number}", request_id=f"r{number}")
            assert await keep_plan(memory, f"task number{number}", request_id=f"r{number}") == first
    async with serve() as memory:
        plans = await memory.list_facts(scope="plan", agent_key="planner", page_size=200)
        assert {plan.text.partition("\n")[0] for plan in plans} == {f"task number{number}" for number in range(50)}
        assert len(await memory.export_facts()) == 51  # and no tombstone
        assert await find_plan(memory, "other task", agent="other") == "other task"


async def test_a_held_users_plan_is_not_overwritten(memory: Memory) -> None:
    ada = memory.acting_as(ADA)
    await keep_plan(ada, TRIP, "one")
    await people.place_hold(memory, user="ada")
    with pytest.raises(Held):
        await keep_plan(ada, TRIP, "two")
    assert [fact.text for fact in await ada.list_facts(scope="plan")] == [f"{TRIP}\none"]
    await keep_plan(ada, "another task")


async def test_a_users_plans_are_erased_with_their_facts(kept: Kept) -> None:
    async with people.furnished(kept, ADA, BOB) as (memory, _):
        for who in (ADA, BOB):
            await keep_plan(memory.acting_as(who), people.mark(who, "plan"))
        await people.erase(memory, user="ada")
        assert await memory.acting_as(ADA).list_facts(scope="plan") == []
        assert len(await memory.acting_as(BOB).list_facts(scope="plan")) == 1
