"""output REASONING_SUMMARY: no reader gets what a model thinks, but a summary of it, behind the answer."""

from __future__ import annotations

from headrace.errors import Overloaded
from tests.support.orchestrator import Serve, plans
from tests.support.orchestrator.steps import answer, call, content, finish, reasoning
from tests.support.order import texts

SUMMED = {"output": "REASONING_SUMMARY"}

THINK = reasoning("secret ", "one") + call("look") + finish("tool_calls")
ANSWER = reasoning("secret two") + content("It ", "snows.") + finish()
SUMMARY = answer("I ", "looked.")


async def test_a_summary_comes_as_reasoning_deltas_behind_the_answer(serve: Serve) -> None:
    async with serve(THINK, ANSWER, **SUMMED) as suite:
        suite.llm.aside["reasoning_summary"] = SUMMARY
        events = await suite.ask()
        (request,) = suite.llm.aside_requests
    assert [event["delta"] for event in events if event["type"] == "reasoning.delta"] == ["I ", "looked."]
    kinds = [event["type"] for event in events]
    assert kinds.index("content.end") < kinds.index("reasoning.start")
    assert request.messages[-1].content[0].text == "secret one\n\nsecret two"
    assert suite.llm.requests[1].messages[-2].reasoning_content == "secret one", "the tool loop has it"
    assert events[-1]["usage"]["modelCalls"] == 3


async def test_history_and_later_runs_have_the_summary_at_most(serve: Serve) -> None:
    async with serve(THINK, ANSWER, answer("Still."), **SUMMED) as suite:
        suite.llm.aside["reasoning_summary"] = SUMMARY
        await suite.ask()
        history = await suite.client.chat(suite.chat_id)
        await suite.ask("again")
    assert "secret" not in str(history)
    assert "secret" not in str(suite.llm.requests[2])
    shown = [event.reasoning_snapshot.text for event in history.events if event.HasField("reasoning_snapshot")]
    assert shown == ["I looked."]


async def test_a_summary_that_cannot_be_made_is_no_loss(serve: Serve) -> None:
    async with serve(ANSWER, **SUMMED) as suite:
        suite.llm.aside["reasoning_summary"] = [Overloaded("busy")]
        events = await suite.ask()
        assert events[-1]["type"] == "run.complete"
    async with serve(ANSWER, budget={"maxModelCalls": 1}, **SUMMED) as suite:
        events = await suite.ask()
        assert (events[-1]["type"], suite.llm.aside_requests) == ("run.complete", [])
    assert texts(events, "reasoning") == []


async def test_what_was_thought_about_tasks_is_in_the_summary_of_a_plan(serve: Serve) -> None:
    async with serve(**plans.agent(), **SUMMED) as suite:
        suite.llm.aside["reasoning_summary"] = SUMMARY
        events = await plans.ask_checked(
            suite, plans.model(plans.add("one"), work=lambda _: [*reasoning("of one"), *ANSWER])
        )
    assert "of onesecret two" in suite.llm.aside_requests[0].messages[-1].content[0].text
    assert "".join(texts(events, "reasoning")) == "I looked."
