"""Answers with too many calls, and replays of runs that once failed because the window was full."""

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


def make_model_info(tokens: int, output: int) -> llm_pb2.ModelInfo:
    return llm_pb2.ModelInfo(provider_key="scripted", model="m", context_window_tokens=tokens, output_tokens_max=output)


def count_results(request: llm_pb2.ChatRequest) -> int:
    return sum(message.role == "tool" for message in request.messages)


def measure_requests(suite: Suite) -> list[int]:
    """Count the tokens of each request exactly, and check that calls and results are paired."""
    for request in suite.llm.raw_requests:
        assert_paired(request)
    return [count_request(request.messages, request.tools, "o200k_base") for request in suite.llm.raw_requests]


def give_results(suite: Suite, chars: int) -> None:
    text = (WORDS * (chars // len(WORDS) + 1))[:chars]
    suite.tools.plays["look"] = [[tools_pb2.ToolDelta(result=tools_pb2.ToolOutcome(ok=True, result=text))]]


async def test_eight_results_larger_than_the_window_are_shortened_in_one_turn(serve: Serve) -> None:
    """They were once dropped with their calls, and the model repeated the calls until its budget was used up."""

    def look_until_seen(request: llm_pb2.ChatRequest) -> list[Step]:
        if count_results(request) >= RESULTS:
            return ANSWER
        calls = [call("look", f'{{"at":{n}}}', index=n, call_id=f"c{n}") for n in range(RESULTS)]
        return [*(delta for deltas in calls for delta in deltas), *finish("tool_calls")]

    async with serve(react={"parallelToolCalls": True}) as suite:
        suite.llm.models = [make_model_info(32_768, 4_096)]
        suite.llm.reply = look_until_seen
        give_results(suite, 30_000)
        events = await suite.ask("Read them all.")
        sizes = measure_requests(suite)
    assert events[-1]["type"] == "run.complete"
    assert len(sizes) == 2
    assert 10_000 < sizes[-1] <= 32_768 - 4_096
    assert [event["code"] for event in events if event["type"] == "run.notice"] == ["CONTEXT_SHORTENED"]


async def test_a_provider_reporting_11_tokens_each_time_gets_no_request_over_the_window(serve: Serve) -> None:
    """We once learned a ratio of 0.5 from it: 6 of 23 requests exceeded the limit, by up to 3,205 tokens."""
    wrong_usage = llm_pb2.LlmDelta(usage={"input_tokens": 11, "output_tokens": 5, "model_calls": 1})  # pyright: ignore[reportArgumentType] - a dict is a message to protobuf

    def look_on(request: llm_pb2.ChatRequest) -> list[Step]:
        number = len(suite.llm.raw_requests)
        if number == 23:
            return [*content("Done."), wrong_usage, finish()[-1]]
        return [*call("look", f'{{"n":{number}}}', call_id=f"c{number}"), wrong_usage, finish("tool_calls")[-1]]

    async with serve(budget={"maxSteps": 40, "maxToolCalls": 40, "maxModelCalls": 60}) as suite:
        suite.llm.models = [make_model_info(8_192, 1_024)]
        suite.llm.reply = look_on
        give_results(suite, 2_400)
        events = await suite.ask("Look on.")
        sizes = measure_requests(suite)
    assert events[-1]["type"] == "run.complete"
    assert len(sizes) == 23
    assert max(sizes) <= 8_192 - 1_024


def call_many(name: str, count: int) -> list[Step]:
    calls = [
        llm_pb2.LlmDelta(tool_call=llm_pb2.ToolCallDelta(index=n, id=f"c{n}", name=name, arguments=part))
        for n in range(count)
        for part in (f'{{"at":{n}', "}")
    ]
    for delta in calls[1::2]:
        delta.tool_call.name = delta.tool_call.id = ""
    return [*calls, *finish("tool_calls")]


def list_results(request: llm_pb2.ChatRequest) -> list[str]:
    return [message.content[0].text for message in request.messages if message.role == "tool"]


@pytest.mark.parametrize("name", ["look", "missing"])
async def test_calls_beyond_the_limit_of_an_answer_are_left_out_and_the_result_says_so(serve: Serve, name: str) -> None:
    async with serve(call_many(name, 20_000), ANSWER) as suite:
        events = await suite.ask()
        assert events[-1]["type"] == "run.complete"
        assert len(events) < 128 * 6
        assert len([event for event in events if event["type"] == "tool.result"]) == 128
        request = suite.llm.requests[-1]
        assert_paired(request)
        results = list_results(request)
        assert [index for index, text in enumerate(results) if "left out" in text] == [127]
        assert results[-1].endswith("[19872 more calls were left out: an answer may have 128]")
        assert fold(await read_recorded(suite, suite.run_ids[0])) == fold(events)
    assert len(suite.tools.requests) == (name == "look")


async def test_an_agent_may_set_its_limit_of_calls_per_answer(serve: Serve) -> None:
    budget = {"maxToolCallsPerAnswer": 2}
    async with serve(call_many("look", 3), ANSWER, budget=budget, react={"parallelToolCalls": True}) as suite:
        events = await suite.ask()
        results = list_results(suite.llm.requests[-1])
    assert events[-1]["type"] == "run.complete"
    assert events[-1]["usage"]["toolCalls"] == 2
    assert results[0] == 'seen {"at":0}'
    assert results[1] == 'seen {"at":1}\n\n[1 more calls were left out: an answer may have 2]'


async def test_a_tool_budget_used_up_within_such_an_answer_ends_its_calls(serve: Serve) -> None:
    """Also when the process dies between the refusal and the end."""
    budget = {"maxToolCallsPerAnswer": 2, "maxToolCalls": 0}
    async with serve(call_many("look", 3), ANSWER, budget=budget, react={"parallelToolCalls": True}) as suite:
        await suite.stop()
        events_before = await run_killed(suite, Crashes(suite), append=4)
        async with restart(suite) as client:
            events_after = await read_rest(client, events_before)
    assert events_after[-1]["finishReason"] == "budget"
