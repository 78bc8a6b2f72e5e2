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
from tests.support.tools.calls import list_sources, list_texts, read_deltas, request
from tests.support.tools.suite import Serve, Suite

QUERIES = ['["mills", "rivers"]']
ENOUGH = ['{"enough": true}']


@asynccontextmanager
async def searching(
    serve: Serve, *scripts: Sequence[Step], web: bool = True, pages: bool = False
) -> AsyncGenerator[tuple[Suite, AskedLlm]]:
    """Run the service with a scripted model and a search endpoint; `web=False` leaves the endpoint out, and `pages` has
    it read pages, which takes time."""
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
        deltas = await read_deltas(suite, request("deep_search", {"query": "How do mills work?"}))
    assert list_texts(deltas)[:3] == report, "each of the model's deltas is one of ours"
    assert ["/mills" in url for url in list_sources(deltas)] == [True] * 5 + [False] * 5
    assert list_texts(deltas, "progress") == ["searching: mills\nsearching: rivers\n"]
    result = deltas[-1].result
    assert result.ok
    assert result.result == "".join(list_texts(deltas))
    assert "[10] rivers in practice" in result.result
    assert deltas[-2].usage.model_calls == 3
    assert deltas[-2].usage.input_tokens == 300
    assert deltas[-2].usage.cost_usd == pytest.approx(1.5)
    assert llm.texts()[2].index("found for: mills") < llm.texts()[2].index("found for: rivers")
    assert "Nobody has counted the exceptions" in llm.texts()[2], "pages are read, not only extracts"
    assert [
        (model_request.provider_key, model_request.model, model_request.stage) for model_request in llm.requests
    ] == [("p", "m", "tool")] * 3


async def test_missing_information_is_searched_for_in_another_round(serve: Serve) -> None:
    more = ['{"enough": false, "queries": ["mills", "wheels"]}']
    async with searching(serve, QUERIES, more, ENOUGH, ["done"]) as (suite, llm):
        deltas = await read_deltas(suite, request("deep_search", {"query": "mills?", "maxLoops": 3}))
    assert list_texts(deltas, "progress") == ["searching: mills\nsearching: rivers\n", "searching: wheels\n"]
    assert len(list_sources(deltas)) == 15
    assert len(llm.requests) == 4


async def test_rounds_end_at_their_limit(serve: Serve) -> None:
    more = ['{"enough": false, "queries": ["wheels"]}']
    async with searching(serve, QUERIES, ["done"]) as (suite, _):
        assert (await read_deltas(suite, request("deep_search", {"query": "mills?", "maxLoops": 1})))[-1].result.ok
    async with searching(serve, QUERIES, more, ["done"]) as (suite, llm):
        deltas = await read_deltas(suite, request("deep_search", {"query": "mills?", "maxLoops": 2}))
    assert deltas[-1].result.ok
    assert len(llm.requests) == 3


@pytest.mark.parametrize("answer", ["", "no list", '["", 5]', "[]", "[1, 2", '{"enough": "perhaps"}'])
async def test_an_unreadable_plan_falls_back_to_the_question(serve: Serve, answer: str) -> None:
    async with searching(serve, [answer], [answer], ["done"]) as (suite, _):
        deltas = await read_deltas(suite, request("deep_search", {"query": "water mills"}))
    assert list_texts(deltas, "progress") == ["searching: water mills\n"]
    assert deltas[-1].result.ok


async def test_the_last_call_of_the_budget_is_kept_for_the_report(serve: Serve) -> None:
    async with searching(serve, ["done"]) as (suite, _):
        budget = tools_pb2.ToolBudget(model_calls=1)
        deltas = await read_deltas(suite, request("deep_search", {"query": "water mills"}, budget=budget))
    assert deltas[-1].result.ok
    assert deltas[-2].usage.model_calls == 1
    async with searching(serve, QUERIES, ["done"]) as (suite, _):
        budget = tools_pb2.ToolBudget(model_calls=2)
        deltas = await read_deltas(suite, request("deep_search", {"query": "water mills"}, budget=budget))
    assert (deltas[-1].result.ok, deltas[-2].usage.model_calls) == (True, 2)


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (tools_pb2.ToolBudget(model_calls=0), "budget for model calls"),
        (tools_pb2.ToolBudget(model_calls=5, tokens=50), "budget for tokens"),
        (None, "budget for model calls"),
    ],
)
async def test_without_a_budget_the_documents_are_the_result(
    serve: Serve, budget: tools_pb2.ToolBudget | None, message: str
) -> None:
    async with searching(serve) as (suite, llm):
        deltas = await read_deltas(suite, request("deep_search", {"query": "water mills"}, budget=budget))
    result = deltas[-1].result
    assert not result.ok
    assert message in result.result
    assert "Found for 'water mills':" in result.result
    assert len(list_sources(deltas)) == 5
    assert not llm.requests


async def test_answers_stay_within_the_tokens_that_are_left(serve: Serve) -> None:
    async with searching(serve, QUERIES, ENOUGH, ["done"]) as (suite, llm):
        budget = tools_pb2.ToolBudget(model_calls=5, tokens=20_000)
        await read_deltas(suite, request("deep_search", {"query": "water mills"}, budget=budget))
    assert llm.requests[0].max_tokens == 2000
    assert not llm.requests[0].reasoning.enabled
    assert not llm.requests[2].HasField("reasoning")
    assert 0 < llm.requests[2].max_tokens < 20_000 - 220


async def test_answers_stay_within_the_money_that_is_left(serve: Serve) -> None:
    budget = tools_pb2.ToolBudget(model_calls=2, cost_usd=0.6, input_usd_per_mtok=10.0, output_usd_per_mtok=100.0)
    async with searching(serve, QUERIES, ["done"]) as (suite, llm):
        deltas = await read_deltas(suite, request("deep_search", {"query": "water mills"}, budget=budget))
    assert llm.requests[0].max_tokens == 2000
    assert 800 < llm.requests[1].max_tokens < 1000, "half a dollar is spent"
    assert deltas[-1].result.ok
    assert [delta.usage.model_calls for delta in deltas if delta.HasField("usage")] == [1, 2]
    async with searching(serve) as (suite, llm):
        budget.cost_usd = 0.001
        deltas = await read_deltas(suite, request("deep_search", {"query": "water mills"}, budget=budget))
    assert "budget for money" in deltas[-1].result.result
    assert not llm.requests


async def test_a_call_without_reported_usage_is_charged_at_the_budgets_prices(serve: Serve) -> None:
    async with searching(serve, QUERIES, ["# Mills", Overloaded("the provider is busy")]) as (suite, _):
        budget = tools_pb2.ToolBudget(model_calls=2, input_usd_per_mtok=1e6, output_usd_per_mtok=1.0)
        deltas = await read_deltas(suite, request("deep_search", {"query": "water mills"}, budget=budget))
    usage = deltas[-2].usage
    assert usage.estimated
    assert usage.cost_usd == pytest.approx(0.5 + (usage.input_tokens - 100), rel=0.01)


@pytest.mark.parametrize("pieces", [[], ["# Mi", "lls"]])
async def test_a_failing_report_model_still_returns_the_documents(serve: Serve, pieces: list[str]) -> None:
    async with searching(serve, QUERIES, ENOUGH, [*pieces, Overloaded("the provider is busy")]) as (suite, _):
        deltas = await read_deltas(suite, request("deep_search", {"query": "water mills"}))
    result = deltas[-1].result
    assert not result.ok
    assert "the provider is busy (OVERLOADED)" in result.result
    assert ("The report up to there:\n\n# Mills" in result.result) is bool(pieces)
    assert result.result.index("Found for 'mills':") < result.result.index("Found for 'rivers':")
    assert deltas[-2].usage.model_calls == 3
    assert deltas[-2].usage.estimated


async def test_a_failing_planning_model_is_skipped(serve: Serve) -> None:
    async with searching(serve, [Overloaded("busy")], ENOUGH, ["done"]) as (suite, _):
        deltas = await read_deltas(suite, request("deep_search", {"query": "water mills"}))
    assert deltas[-1].result.ok
    assert len(list_sources(deltas)) == 5


async def test_an_unreachable_search_endpoint_is_reported(serve: Serve) -> None:
    async with searching(serve, QUERIES, web=False) as (suite, _):
        deltas = await read_deltas(suite, request("deep_search", {"query": "water mills", "maxLoops": 1}))
    assert not deltas[-1].result.ok
    assert "search endpoint cannot be reached" in deltas[-1].result.result


async def test_a_call_without_a_model_is_refused(serve: Serve) -> None:
    async with searching(serve) as (suite, _):
        deltas = await read_deltas(suite, request("deep_search", {"query": "water mills"}, model=None))
    assert not deltas[-1].result.ok
    assert "without one" in deltas[-1].result.result


async def test_a_timeout_ends_the_report_but_keeps_the_partial_result(serve: Serve) -> None:
    async with searching(serve, QUERIES, ENOUGH, ["beginning", None]) as (suite, llm):
        deltas = await read_deltas(suite, request("deep_search", {"query": "water mills"}, timeout_ms=1000))
        await llm.left.wait()
    assert not deltas[-1].result.ok
    assert "beginning" in deltas[-1].result.result


async def test_a_timeout_ends_a_pending_search(serve: Serve) -> None:
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
            deltas = await read_deltas(suite, request("deep_search", {"query": "water mills"}, timeout_ms=500))
    assert not deltas[-1].result.ok
    assert "time for this call is over" in deltas[-1].result.result


@pytest.mark.parametrize("scripts", [[[None]], [QUERIES, [None]], [QUERIES, ENOUGH, ["a", None]]])
async def test_cancelling_the_call_stops_the_model_at_once(serve: Serve, scripts: list[list[Step]]) -> None:
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
        deltas = await read_deltas(suite, request("deep_search", {"query": "x"}))
        listed = (await suite.stub.ListTools(tools_pb2.ListToolsRequest())).tools
    assert "HEADRACE_TOOLS_SEARCH_URL" in deltas[-1].result.result
    reasons = {tool.name: tool.unavailable for tool in listed if tool.HasField("unavailable")}
    assert set(reasons) == {"deep_search", "web_search"}
    assert all("HEADRACE_TOOLS_SEARCH_URL" in reason for reason in reasons.values())


@pytest.mark.parametrize(
    ("reason", "ok", "message"), [("length", True, "was cut here"), ("content_filter", False, "refused")]
)
async def test_a_truncated_or_filtered_report_is_marked(serve: Serve, reason: str, ok: bool, message: str) -> None:
    async with searching(serve, QUERIES, ["done"]) as (suite, llm):
        llm.finish_reason = reason
        deltas = await read_deltas(suite, request("deep_search", {"query": "mills?", "maxLoops": 1}))
    assert deltas[-1].result.ok is ok
    assert message in deltas[-1].result.result
