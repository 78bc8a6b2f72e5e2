"""SECOND_PASS_FIX and REASONING_SUMMARY: readers get a second turn's version of the answer or of the reasoning."""

from typing import Any

import pytest

from headrace.errors import Overloaded
from headrace.v1 import memory_pb2
from tests.support.orchestrator import CHAT, Serve, Suite, ask, cancels, only, plans
from tests.support.orchestrator.steps import Step, answer, call, content, finish, reasoning
from tests.support.order import texts

CHECKED: dict[str, Any] = {"verify": "SECOND_PASS_FIX"}

DRAFT = reasoning("hm") + content("It is ", "four.") + finish()
FIXED = answer("It ", "is ", "five.")


async def read_stored_steps(suite: Suite) -> list[memory_pb2.StepLine]:
    """Return the read_stored_steps steps of the suite's last run."""
    request = memory_pb2.GetChatRequest(run_id=suite.run_ids[-1], include_lines=True)
    lines = (await suite.memory.GetChat(request, None)).lines
    return [line.step for line in lines if line.HasField("step")]


def read_request_text(suite: Suite, turn: int) -> str:
    """Return all text of a request."""
    return "\n".join(part.text for message in suite.llm.requests[turn].messages for part in message.content)


@pytest.mark.parametrize("mode", ["REACT", "ONESHOT"])
async def test_the_second_turn_is_streamed_as_the_answer(serve: Serve, mode: str) -> None:
    async with serve(DRAFT, FIXED, mode=mode, plain={}, **CHECKED) as suite:
        events = await suite.ask()
        steps = await read_stored_steps(suite)
    assert texts(events, "content") == ["It ", "is ", "five."]
    assert texts(events, "reasoning") == ["hm"], "reasoning is streamed as always"
    assert "It is four." in read_request_text(suite, 1)
    assert suite.llm.requests[1].tool_choice in ("none", "")
    assert [step.stage for step in steps] == ["verify", mode.lower()]
    draft = steps[0].messages[-1]
    assert (draft.message.content[0].text, draft.HasField("events")) == ("It is four.", False)
    assert events[-1]["usage"]["modelCalls"] == 2


async def test_later_turns_and_the_history_omit_the_draft(serve: Serve) -> None:
    async with serve(DRAFT, FIXED, answer("Good."), FIXED, **CHECKED) as suite:
        await suite.ask()
        history = await suite.client.chat(suite.chat_id)
        await suite.ask("and now?")
        assert "four" not in read_request_text(suite, 2)
        assert "It is five." in read_request_text(suite, 2)
        assert "Good." in read_request_text(suite, 3)
        assert "four" not in read_request_text(suite, 3)
    snapshots = [event.content_snapshot.text for event in history.events if event.HasField("content_snapshot")]
    assert snapshots == ["It is five."]


async def test_text_before_a_tool_call_is_not_a_draft(serve: Serve) -> None:
    ask = content("Let ", "me look.") + call("look") + finish("tool_calls")
    async with serve(ask, DRAFT, FIXED, **CHECKED) as suite:
        events = await suite.ask()
        assert [step.stage for step in await read_stored_steps(suite)] == ["react", "react", "verify", "react"]
    assert texts(events, "content") == ["Let ", "me look.", "It ", "is ", "five."]
    plans.check_pairs(suite)


@pytest.mark.parametrize(
    ("second", "calls", "reason"),
    [([Overloaded("busy")], 9, "OVERLOADED"), (finish(), 9, ""), (FIXED, 1, "BUDGET_EXCEEDED")],
    ids=["fails", "says nothing", "is not in the budget"],
)
async def test_without_a_second_turn_the_draft_is_the_answer(
    serve: Serve, second: list[Step], calls: int, reason: str
) -> None:
    async with serve(DRAFT, second, budget={"maxModelCalls": calls}, **CHECKED) as suite:
        events = await suite.ask()
    assert texts(events, "content") == ["It is four."]
    notice = only(events, "run.notice")
    assert (notice["code"], reason in notice["message"]) == ("VERIFY_SKIPPED", True)
    assert events[-1]["finishReason"] == "stop"


async def test_a_second_turn_that_breaks_off_fails_the_run(serve: Serve) -> None:
    async with serve(DRAFT, [*content("It "), Overloaded("busy")], **CHECKED) as suite:
        events = await suite.ask()
    assert texts(events, "content") == ["It "]
    assert events[-1]["error"]["code"] == "OVERLOADED"


async def test_a_cancel_between_the_turns_leaves_the_chat_in_order(serve: Serve) -> None:
    async with serve(DRAFT, [*content("It "), 60.0], FIXED, **CHECKED) as suite:
        suite.chat_id = CHAT
        broken = await ask(suite, ("content.delta", cancels(suite)))
        suite.llm.turns = [DRAFT, DRAFT, DRAFT, FIXED]
        events = await suite.ask()
    assert texts(broken, "content") == ["It "]
    assert broken[-1]["type"] == "run.cancel"
    assert texts(events, "content") == ["It ", "is ", "five."]


async def test_of_a_plan_only_the_summary_is_checked(serve: Serve) -> None:
    async with serve(**plans.agent(), **CHECKED) as suite:
        events = await plans.ask_checked(suite, plans.model(plans.add("one", "two")))
        stages = [step.stage for step in await read_stored_steps(suite) if not step.context_id]
    assert stages.count("verify") == 1
    assert stages[-2:] == ["verify", "summary"]
    assert only(events, "run.complete")["finishReason"] == "stop"


SUMMED = {"output": "REASONING_SUMMARY"}

THINK = reasoning("secret ", "one") + call("look") + finish("tool_calls")
ANSWER = reasoning("secret two") + content("It ", "snows.") + finish()
SUMMARY = answer("I ", "looked.")


async def test_a_reasoning_summary_is_streamed_after_the_answer(serve: Serve) -> None:
    async with serve(THINK, ANSWER, **SUMMED) as suite:
        suite.llm.aside["reasoning_summary"] = SUMMARY
        events = await suite.ask()
        (request,) = suite.llm.aside_requests
    assert texts(events, "reasoning") == ["I ", "looked."]
    kinds = [event["type"] for event in events]
    assert kinds.index("content.end") < kinds.index("reasoning.start")
    assert request.messages[-1].content[0].text == "secret one\n\nsecret two"
    assert suite.llm.requests[1].messages[-2].reasoning_content == "secret one", (
        "requests of the tool loop keep the reasoning"
    )
    assert events[-1]["usage"]["modelCalls"] == 3


async def test_history_and_later_runs_have_no_reasoning_but_the_summary(serve: Serve) -> None:
    async with serve(THINK, ANSWER, answer("Still."), **SUMMED) as suite:
        suite.llm.aside["reasoning_summary"] = SUMMARY
        await suite.ask()
        history = await suite.client.chat(suite.chat_id)
        await suite.ask("again")
    assert "secret" not in str(history)
    assert "secret" not in str(suite.llm.requests[2])
    summaries = [event.reasoning_snapshot.text for event in history.events if event.HasField("reasoning_snapshot")]
    assert summaries == ["I looked."]


async def test_a_run_completes_without_a_reasoning_summary_that_fails(serve: Serve) -> None:
    async with serve(ANSWER, **SUMMED) as suite:
        suite.llm.aside["reasoning_summary"] = [Overloaded("busy")]
        events = await suite.ask()
        assert events[-1]["type"] == "run.complete"
    async with serve(ANSWER, budget={"maxModelCalls": 1}, **SUMMED) as suite:
        events = await suite.ask()
        assert (events[-1]["type"], suite.llm.aside_requests) == ("run.complete", [])
    assert texts(events, "reasoning") == []


async def test_the_reasoning_summary_of_a_plan_covers_its_tasks(serve: Serve) -> None:
    async with serve(**plans.agent(), **SUMMED) as suite:
        suite.llm.aside["reasoning_summary"] = SUMMARY
        model = plans.model(plans.add("one"), work=lambda _: [*reasoning("of one"), *ANSWER])
        events = await plans.ask_checked(suite, model)
    assert "of onesecret two" in suite.llm.aside_requests[0].messages[-1].content[0].text
    assert "".join(texts(events, "reasoning")) == "I looked."
