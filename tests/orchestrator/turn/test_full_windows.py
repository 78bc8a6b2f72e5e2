"""Runs that once ended badly in a full window, played again: results that do not fit, and usage that is not true."""

from __future__ import annotations

from headrace.v1 import llm_pb2, tools_pb2
from services.runtime.tokens.count import count_request
from tests.support.orchestrator import Serve, Suite, assert_paired
from tests.support.orchestrator.compaction import WORDS
from tests.support.orchestrator.steps import Step, answer, call, content, finish

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
