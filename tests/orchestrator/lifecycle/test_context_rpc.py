"""GetContext: a window as people see it, before a question, during a run and after it. ListRuns: pages of them."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from headrace.errors import InvalidRequest, NotFound
from headrace.v1 import agent_pb2, llm_pb2
from tests.support.orchestrator import CHAT, MODEL, Serve, answer, ask, call_tool, content
from tests.support.order import Event

INFO = llm_pb2.ModelInfo(provider_key="scripted", model="m", context_window_tokens=50_000, output_tokens_max=1_000)
OTHER = "44444444-4444-4444-8444-444444444444"


def count_by_kind(context: agent_pb2.GetContextResponse) -> dict[str, int]:
    return {part.kind: part.count for part in context.parts if part.state == "shown"}


async def test_the_next_questions_window_is_what_its_request_will_hold(serve: Serve) -> None:
    system = {"systemPrompt": "You look at things, with {{tools}}."}
    turns = call_tool("look"), answer("seen")
    async with serve(*turns, react=system, toolConfig={"backends": ["look", "missing"]}) as suite:
        suite.llm.models = [INFO]
        await suite.ask()
        before = await suite.client.context(suite.chat_id)
        asked = len(suite.llm.requests)
        again = await suite.client.context(suite.chat_id, agent_key="react")
        assert len(suite.llm.requests) == asked, "no model is asked"
        await suite.ask("and now?")
    request = suite.llm.requests[asked]
    counts = {"system": 1, "tools": len(request.tools), "messages": 3, "results": 1, "reminder": 2}
    assert count_by_kind(before) == counts
    assert (before.agent_key, before.model, before.context_window_tokens) == ("react", "m", 50_000)
    # Each part is rounded up by itself.
    assert 0 <= sum(part.tokens for part in before.parts) - before.tokens < len(before.parts)
    assert before.tokens == again.tokens
    assert (before.last_input_tokens, before.HasField("last_cached_ratio")) == (10, False)
    # The question is what was not there yet.
    assert len(request.messages) == 1 + 3 + 1 + 1


@pytest.mark.parametrize(
    ("given", "model", "window"), [(0, "gpt-4o", 128_000), (9_000, "gpt-4o", 9_000), (0, "nobody-knows-it", 32_768)]
)
async def test_a_window_that_the_provider_file_does_not_have_is_the_built_in_tables(
    serve: Serve, given: int, model: str, window: int
) -> None:
    async with serve(answer("seen"), modelConfig={"providerKey": "scripted", "model": model}) as suite:
        suite.llm.models = [llm_pb2.ModelInfo(provider_key="scripted", model=model, context_window_tokens=given)]
        await suite.ask()
        shown = await suite.client.context(suite.chat_id)
    assert shown.context_window_tokens == window
    assert shown.output_tokens > 0


async def test_a_run_is_looked_into_while_it_goes_on_and_when_it_is_over(serve: Serve) -> None:
    async with serve([*content("a"), 600.0], answer("b")) as suite:
        suite.llm.models = [INFO]
        live: list[agent_pb2.GetContextResponse] = []

        async def look_and_cancel(event: Event) -> None:
            live.append(await suite.client.context(CHAT, run_id=event["runId"]))
            await suite.client.cancel(event["runId"])

        run_id = (await ask(suite, ("content.delta", look_and_cancel)))[-1]["runId"]
        over = await suite.client.context(CHAT, run_id=run_id)
        with pytest.raises(NotFound):
            await suite.client.context(OTHER, run_id=run_id)
    assert live[0].run_id == over.run_id == run_id
    assert (count_by_kind(live[0])["messages"], count_by_kind(over)["messages"]) == (1, 2)


async def test_the_window_of_a_run_is_that_of_the_version_that_it_had(serve: Serve) -> None:
    async with serve(answer("a"), react={"systemPrompt": "You look at things."}) as suite:
        suite.llm.models = [INFO]
        run_id = (await suite.ask())[-1]["runId"]
        before = await suite.client.context(suite.chat_id, run_id=run_id)
        (suite.agents / "react.json").unlink()
        async with asyncio.timeout(60):
            with suppress(NotFound):
                while True:  # until the folder is looked at again
                    await suite.client.context(suite.chat_id)
        after = await suite.client.context(suite.chat_id, run_id=run_id)
    assert [part.tokens for part in after.parts] == [part.tokens for part in before.parts]


async def test_what_is_not_there_is_not_found(serve: Serve) -> None:
    async with serve(answer("a"), modelConfig=MODEL) as suite:
        await suite.ask()
        for fields in ({"chat_id": OTHER}, {"agent_key": "nobody"}, {"run_id": OTHER}):
            with pytest.raises(NotFound):
                await suite.client.context(**{"chat_id": suite.chat_id} | fields)
        assert (await suite.client.context(suite.chat_id, agent_key="oneshot")).agent_key == "oneshot"


ANSWER = answer("fine")


async def test_pages_give_every_run_once_and_each_the_whole_cost(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        for _ in range(5):
            await suite.ask()
        found: list[str] = []
        token = ""
        for count in (2, 2, 1):
            page = await suite.client.chat_runs(suite.chat_id, page_size=2, page_token=token)
            assert len(page.runs) == count
            assert (page.runs_total, page.usage_total.model_calls, page.usage_total.input_tokens) == (5, 5, 50)
            assert not page.usage_total.HasField("cost_usd")
            found += [run.run_id for run in page.runs]
            token = page.next_page_token
        assert (found, token) == (suite.run_ids, "")
        assert [run.run_id for run in (await suite.client.chat_runs(suite.chat_id)).runs] == suite.run_ids


@pytest.mark.parametrize(("fields", "field"), [({"page_size": 201}, "pageSize"), ({"page_token": "x"}, "pageToken")])
async def test_a_page_that_cannot_be_is_refused(serve: Serve, fields: dict[str, Any], field: str) -> None:
    async with serve(ANSWER) as suite:
        await suite.ask()
        with pytest.raises(InvalidRequest, match=field):
            await suite.client.chat_runs(suite.chat_id, **fields)
