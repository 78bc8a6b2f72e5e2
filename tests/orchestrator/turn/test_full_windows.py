"""Answers with more calls than are taken of one, and runs that once ended badly in a full window, played again."""

import pytest

from headrace.v1 import llm_pb2, tools_pb2
from services.runtime.tokens.count import count_request
from tests.support.orchestrator import Serve, Step, Suite, answer, assert_paired, call, content, finish
from tests.support.orchestrator.compaction import WORDS
from tests.support.orchestrator.crashes import Crashes, read_rest, restart, run_killed
from tests.support.orchestrator.runs import read_recorded
from tests.support.order import fold

ANSWER = answer("Enough.")
RESULTS = 8


def window(tokens: int, output: int) -> llm_pb2.ModelInfo:
    return llm_pb2.ModelInfo(provider_key="scripted", model="m", context_window_tokens=tokens, output_tokens_max=output)


def count_results(request: llm_pb2.ChatRequest) -> int:
    return sum(message.role == "tool" for message in request.messages)


def measure(suite: Suite) -> list[int]:
    """The tokens of each request, on a true count; each can be sent."""
    for request in suite.llm.raw_requests:
        assert_paired(request)
    return [count_request(request.messages, request.tools, "o200k_base") for request in suite.llm.raw_requests]


def give_results(suite: Suite, chars: int) -> None:
    text = (WORDS * (chars // len(WORDS) + 1))[:chars]
    suite.tools.plays["look"] = [[tools_pb2.ToolDelta(result=tools_pb2.ToolOutcome(ok=True, result=text))]]


async def test_eight_results_that_do_not_fit_together_are_all_answered_at_the_first_try(serve: Serve) -> None:
    """They were dropped with their calls, so that the model called again until its budget was used up."""

    def look_until_seen(request: llm_pb2.ChatRequest) -> list[Step]:
        if count_results(request) >= RESULTS:
            return ANSWER
        calls = [call("look", f'{{"at":{n}}}', index=n, call_id=f"c{n}") for n in range(RESULTS)]
        return [*(delta for each in calls for delta in each), *finish("tool_calls")]

    async with serve(react={"parallelToolCalls": True}) as suite:
        suite.llm.models = [window(32_768, 4_096)]
        suite.llm.reply = look_until_seen
        give_results(suite, 30_000)
        events = await suite.ask("Read them all.")
        sizes = measure(suite)
    assert events[-1]["type"] == "run.complete"
    assert len(sizes) == 2
    assert 10_000 < sizes[-1] <= 32_768 - 4_096
    assert [event["code"] for event in events if event["type"] == "run.notice"] == ["CONTEXT_SHORTENED"]


async def test_a_provider_that_says_11_tokens_each_time_gets_no_request_over_the_window(serve: Serve) -> None:
    """The ratio that was learned from it was 0.5: 6 of 23 requests were over the limit, by up to 3,205 tokens."""
    lied = llm_pb2.LlmDelta(usage={"input_tokens": 11, "output_tokens": 5, "model_calls": 1})  # pyright: ignore[reportArgumentType] - a dict is a message to protobuf

    def look_on(request: llm_pb2.ChatRequest) -> list[Step]:
        number = len(suite.llm.raw_requests)
        if number == 23:
            return [*content("Done."), lied, finish()[-1]]
        return [*call("look", f'{{"n":{number}}}', call_id=f"c{number}"), lied, finish("tool_calls")[-1]]

    async with serve(budget={"maxSteps": 40, "maxToolCalls": 40, "maxModelCalls": 60}) as suite:
        suite.llm.models = [window(8_192, 1_024)]
        suite.llm.reply = look_on
        give_results(suite, 2_400)
        events = await suite.ask("Look on.")
        sizes = measure(suite)
    assert events[-1]["type"] == "run.complete"
    assert len(sizes) == 23
    assert max(sizes) <= 8_192 - 1_024


def ask_for(name: str, count: int) -> list[Step]:
    calls = [
        llm_pb2.LlmDelta(tool_call=llm_pb2.ToolCallDelta(index=n, id=f"c{n}", name=name, arguments=part))
        for n in range(count)
        for part in (f'{{"at":{n}', "}")
    ]
    for delta in calls[1::2]:
        delta.tool_call.name = delta.tool_call.id = ""
    return [*calls, *finish("tool_calls")]


def results_of(request: llm_pb2.ChatRequest) -> list[str]:
    return [message.content[0].text for message in request.messages if message.role == "tool"]


@pytest.mark.parametrize("name", ["look", "missing"])
async def test_calls_beyond_the_limit_are_left_out_and_the_model_is_told(serve: Serve, name: str) -> None:
    async with serve(ask_for(name, 20_000), ANSWER) as suite:
        events = await suite.ask()
        assert events[-1]["type"] == "run.complete"
        assert len(events) < 128 * 6
        assert len([event for event in events if event["type"] == "tool.result"]) == 128
        request = suite.llm.requests[-1]
        assert_paired(request)
        results = results_of(request)
        assert [at for at, text in enumerate(results) if "left out" in text] == [127]
        assert results[-1].endswith("[19872 more calls were left out: an answer may have 128]")
        assert fold(await read_recorded(suite, suite.run_ids[0])) == fold(events)
    assert len(suite.tools.requests) == (name == "look")


async def test_an_agent_has_its_own_limit(serve: Serve) -> None:
    budget = {"maxToolCallsPerAnswer": 2}
    async with serve(ask_for("look", 3), ANSWER, budget=budget, react={"parallelToolCalls": True}) as suite:
        events = await suite.ask()
        results = results_of(suite.llm.requests[-1])
    assert events[-1]["type"] == "run.complete"
    assert events[-1]["usage"]["toolCalls"] == 2
    assert results[0] == 'seen {"at":0}'
    assert results[1] == 'seen {"at":1}\n\n[1 more calls were left out: an answer may have 2]'


async def test_a_budget_that_ends_within_such_an_answer_still_ends_the_calls(serve: Serve) -> None:
    """Also where the process dies between the refusal and the end."""
    budget = {"maxToolCallsPerAnswer": 2, "maxToolCalls": 0}
    async with serve(ask_for("look", 3), ANSWER, budget=budget, react={"parallelToolCalls": True}) as suite:
        await suite.stop()
        seen = await run_killed(suite, Crashes(suite), append=4)
        async with restart(suite) as client:
            rest = await read_rest(client, seen)
    assert rest[-1]["finishReason"] == "budget"
