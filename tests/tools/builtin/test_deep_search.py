"""deep_search over a real service: a scripted model, and the simulator as the web."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest

from headrace.errors import Overloaded
from headrace.streams import reading
from headrace.v1 import tools_pb2
from services.simulator.server import simulator
from tests.support.timing import within
from tests.support.tools.asked_llm import AskedLlm, Step, asked_llm
from tests.support.tools.calls import deltas_of, request, sources, texts
from tests.support.tools.suite import Serve, Suite

QUERIES = ['["mills", "rivers"]']
ENOUGH = ['{"enough": true}']


@asynccontextmanager
async def searching(
    serve: Serve, *scripts: Sequence[Step], web: bool = True, pages: bool = False
) -> AsyncGenerator[tuple[Suite, AskedLlm]]:
    """The service between a model and a web; without `web` the endpoint is not there. Reading `pages` takes time."""
    async with asyncio.timeout(300), simulator() as sim, asked_llm(*scripts) as llm:
        origin = sim.base_url.removesuffix("/v1")
        settings = {
            "llm_gateway_address": llm.address,
            "search_url": f"{origin}/search" if web else "http://127.0.0.1:1/search",
            "fetch_allow": origin.removeprefix("http://") if pages else "",
        }
        async with serve(None, **settings) as suite:
            yield suite, llm


async def test_a_report_is_streamed_from_documents_in_the_order_of_their_queries(serve: Serve) -> None:
    report = ["# Mills", "\n\n", "They turn [1]."]
    async with searching(serve, QUERIES, ENOUGH, report, pages=True) as (suite, llm):
        seen = await deltas_of(suite, request("deep_search", {"query": "How do mills work?"}))
    assert texts(seen)[:3] == report, "each of the model's deltas is one of ours"
    assert ["/mills" in url for url in sources(seen)] == [True] * 5 + [False] * 5
    assert texts(seen, "progress") == ["searching: mills\nsearching: rivers\n"]
    result = seen[-1].result
    assert result.ok
    assert result.result == "".join(texts(seen))
    assert "[10] rivers in practice" in result.result
    assert seen[-2].usage.model_calls == 3
    assert seen[-2].usage.input_tokens == 300
    assert seen[-2].usage.cost_usd == pytest.approx(1.5)
    assert llm.texts()[2].index("found for: mills") < llm.texts()[2].index("found for: rivers")
    assert "Nobody has counted the exceptions" in llm.texts()[2], "pages are read, not only extracts"
    assert [(asked.provider_key, asked.model, asked.stage) for asked in llm.requests] == [("p", "m", "tool")] * 3


async def test_what_is_missing_is_searched_for_in_another_round(serve: Serve) -> None:
    more = ['{"enough": false, "queries": ["mills", "wheels"]}']
    async with searching(serve, QUERIES, more, ENOUGH, ["done"]) as (suite, llm):
        seen = await deltas_of(suite, request("deep_search", {"query": "mills?", "maxLoops": 3}))
    assert texts(seen, "progress") == ["searching: mills\nsearching: rivers\n", "searching: wheels\n"]
    assert len(sources(seen)) == 15
    assert len(llm.requests) == 4


async def test_rounds_end_at_their_limit(serve: Serve) -> None:
    more = ['{"enough": false, "queries": ["wheels"]}']
    async with searching(serve, QUERIES, ["done"]) as (suite, _):
        assert (await deltas_of(suite, request("deep_search", {"query": "mills?", "maxLoops": 1})))[-1].result.ok
    async with searching(serve, QUERIES, more, ["done"]) as (suite, llm):
        seen = await deltas_of(suite, request("deep_search", {"query": "mills?", "maxLoops": 2}))
    assert seen[-1].result.ok
    assert len(llm.requests) == 3


@pytest.mark.parametrize("answer", ["", "no list", '["", 5]', "[]", "[1, 2", '{"enough": "perhaps"}'])
async def test_an_answer_that_cannot_be_read_falls_back_to_the_question(serve: Serve, answer: str) -> None:
    async with searching(serve, [answer], [answer], ["done"]) as (suite, _):
        seen = await deltas_of(suite, request("deep_search", {"query": "water mills"}))
    assert texts(seen, "progress") == ["searching: water mills\n"]
    assert seen[-1].result.ok


async def test_the_last_call_of_the_budget_is_kept_for_the_report(serve: Serve) -> None:
    async with searching(serve, ["done"]) as (suite, _):
        budget = tools_pb2.ToolBudget(model_calls=1)
        seen = await deltas_of(suite, request("deep_search", {"query": "water mills"}, budget=budget))
    assert seen[-1].result.ok
    assert seen[-2].usage.model_calls == 1
    async with searching(serve, QUERIES, ["done"]) as (suite, _):
        budget = tools_pb2.ToolBudget(model_calls=2)
        seen = await deltas_of(suite, request("deep_search", {"query": "water mills"}, budget=budget))
    assert (seen[-1].result.ok, seen[-2].usage.model_calls) == (True, 2)


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (tools_pb2.ToolBudget(model_calls=0), "budget for model calls"),
        (tools_pb2.ToolBudget(model_calls=5, tokens=50), "budget for tokens"),
        (None, "budget for model calls"),
    ],
)
async def test_without_a_budget_the_documents_are_the_result(
    serve: Serve, budget: tools_pb2.ToolBudget | None, said: str
) -> None:
    async with searching(serve) as (suite, llm):
        seen = await deltas_of(suite, request("deep_search", {"query": "water mills"}, budget=budget))
    result = seen[-1].result
    assert not result.ok
    assert said in result.result
    assert "Found for 'water mills':" in result.result
    assert len(sources(seen)) == 5
    assert not llm.requests


async def test_answers_stay_within_the_tokens_that_are_left(serve: Serve) -> None:
    async with searching(serve, QUERIES, ENOUGH, ["done"]) as (suite, llm):
        budget = tools_pb2.ToolBudget(model_calls=5, tokens=20_000)
        await deltas_of(suite, request("deep_search", {"query": "water mills"}, budget=budget))
    assert llm.requests[0].max_tokens == 2000
    assert not llm.requests[0].reasoning.enabled
    assert not llm.requests[2].HasField("reasoning")
    assert 0 < llm.requests[2].max_tokens < 20_000 - 220


async def test_answers_stay_within_the_money_that_is_left(serve: Serve) -> None:
    budget = tools_pb2.ToolBudget(model_calls=2, cost_usd=0.6, input_usd_per_mtok=10.0, output_usd_per_mtok=100.0)
    async with searching(serve, QUERIES, ["done"]) as (suite, llm):
        seen = await deltas_of(suite, request("deep_search", {"query": "water mills"}, budget=budget))
    assert llm.requests[0].max_tokens == 2000
    assert 800 < llm.requests[1].max_tokens < 1000, "half a dollar is spent"
    assert seen[-1].result.ok
    assert [delta.usage.model_calls for delta in seen if delta.HasField("usage")] == [1, 2]
    async with searching(serve) as (suite, llm):
        budget.cost_usd = 0.001
        seen = await deltas_of(suite, request("deep_search", {"query": "water mills"}, budget=budget))
    assert "budget for money" in seen[-1].result.result
    assert not llm.requests


async def test_a_call_whose_usage_did_not_come_is_charged_at_the_budgets_prices(serve: Serve) -> None:
    async with searching(serve, QUERIES, ["# Mills", Overloaded("the provider is busy")]) as (suite, _):
        budget = tools_pb2.ToolBudget(model_calls=2, input_usd_per_mtok=1e6, output_usd_per_mtok=1.0)
        seen = await deltas_of(suite, request("deep_search", {"query": "water mills"}, budget=budget))
    usage = seen[-2].usage
    assert usage.estimated
    assert usage.cost_usd == pytest.approx(0.5 + (usage.input_tokens - 100), rel=0.01)


@pytest.mark.parametrize("said", [[], ["# Mi", "lls"]])
async def test_a_model_that_fails_leaves_what_was_found(serve: Serve, said: list[str]) -> None:
    async with searching(serve, QUERIES, ENOUGH, [*said, Overloaded("the provider is busy")]) as (suite, _):
        seen = await deltas_of(suite, request("deep_search", {"query": "water mills"}))
    result = seen[-1].result
    assert not result.ok
    assert "the provider is busy (OVERLOADED)" in result.result
    assert ("The report up to there:\n\n# Mills" in result.result) is bool(said)
    assert result.result.index("Found for 'mills':") < result.result.index("Found for 'rivers':")
    assert seen[-2].usage.model_calls == 3
    assert seen[-2].usage.estimated


async def test_a_model_that_fails_at_the_start_is_done_without(serve: Serve) -> None:
    async with searching(serve, [Overloaded("busy")], ENOUGH, ["done"]) as (suite, _):
        seen = await deltas_of(suite, request("deep_search", {"query": "water mills"}))
    assert seen[-1].result.ok
    assert len(sources(seen)) == 5


async def test_a_search_endpoint_that_is_away_is_told(serve: Serve) -> None:
    async with searching(serve, QUERIES, web=False) as (suite, _):
        seen = await deltas_of(suite, request("deep_search", {"query": "water mills", "maxLoops": 1}))
    assert not seen[-1].result.ok
    assert "search endpoint cannot be reached" in seen[-1].result.result


async def test_a_call_without_a_model_is_told(serve: Serve) -> None:
    async with searching(serve) as (suite, _):
        seen = await deltas_of(suite, request("deep_search", {"query": "water mills"}, model=None))
    assert not seen[-1].result.ok
    assert "without one" in seen[-1].result.result


async def test_the_time_of_the_call_ends_the_report_and_not_the_result(serve: Serve) -> None:
    async with searching(serve, QUERIES, ENOUGH, ["beginning", None]) as (suite, llm):
        seen = await deltas_of(suite, request("deep_search", {"query": "water mills"}, timeout_ms=1000))
        await llm.left.wait()
    assert not seen[-1].result.ok
    assert "beginning" in seen[-1].result.result


async def test_the_time_of_the_call_ends_a_search_too(serve: Serve) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with (
        asyncio.timeout(100),
        asked_llm(QUERIES) as llm,
        await asyncio.start_server(silent, "127.0.0.1", 0) as web,
    ):
        url = f"http://127.0.0.1:{web.sockets[0].getsockname()[1]}"
        async with serve(None, llm_gateway_address=llm.address, search_url=url) as suite:
            seen = await deltas_of(suite, request("deep_search", {"query": "water mills"}, timeout_ms=500))
    assert not seen[-1].result.ok
    assert "time for this call is over" in seen[-1].result.result


@pytest.mark.parametrize("scripts", [[[None]], [QUERIES, [None]], [QUERIES, ENOUGH, ["a", None]]])
async def test_leaving_stops_the_model_at_once(serve: Serve, scripts: list[list[Step]]) -> None:
    async with searching(serve, *scripts) as (suite, llm):
        async with reading(suite.stub.Execute(request("deep_search", {"query": "water mills"}))) as deltas:
            reader = asyncio.ensure_future(anext(deltas))
            while len(llm.requests) < len(scripts):
                await asyncio.sleep(0.01)
                if reader.done() and not reader.cancelled():
                    reader = asyncio.ensure_future(anext(deltas))
            reader.cancel()
        async with within(0.5):
            await llm.left.wait()


async def test_an_unconfigured_search_is_unavailable(serve: Serve) -> None:
    async with serve() as suite:
        seen = await deltas_of(suite, request("deep_search", {"query": "x"}))
        listed = (await suite.stub.ListTools(tools_pb2.ListToolsRequest())).tools
    assert "HEADRACE_TOOLS_SEARCH_URL" in seen[-1].result.result
    reasons = {tool.name: tool.unavailable for tool in listed if tool.HasField("unavailable")}
    assert set(reasons) == {"deep_search", "web_search"}
    assert all("HEADRACE_TOOLS_SEARCH_URL" in reason for reason in reasons.values())


@pytest.mark.parametrize(
    ("reason", "ok", "said"), [("length", True, "was cut here"), ("content_filter", False, "refused")]
)
async def test_a_report_that_ends_early_says_so(serve: Serve, reason: str, ok: bool, said: str) -> None:
    async with searching(serve, QUERIES, ["done"]) as (suite, llm):
        llm.finish_reason = reason
        seen = await deltas_of(suite, request("deep_search", {"query": "mills?", "maxLoops": 1}))
    assert seen[-1].result.ok is ok
    assert said in seen[-1].result.result
