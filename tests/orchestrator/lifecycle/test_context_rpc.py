"""GetContext shows the model's window before a question, during a run and after it; ListRuns pages through runs."""

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


async def test_the_context_before_a_question_matches_its_request(serve: Serve) -> None:
    system = {"systemPrompt": "You look at things, with {{tools}}."}
    turns = call_tool("look"), answer("seen")
    async with serve(*turns, react=system, toolConfig={"backends": ["look", "missing"]}) as suite:
        suite.llm.models = [INFO]
        await suite.ask()
        before = await suite.client.context(suite.chat_id)
        requests_before = len(suite.llm.requests)
        again = await suite.client.context(suite.chat_id, agent_key="react")
        assert len(suite.llm.requests) == requests_before, "no model is asked"
        await suite.ask("and now?")
    request = suite.llm.requests[requests_before]
    counts = {"system": 1, "tools": len(request.tools), "messages": 3, "results": 1, "reminder": 2}
    assert count_by_kind(before) == counts
    assert (before.agent_key, before.model, before.context_window_tokens) == ("react", "m", 50_000)
    # Each part is rounded up by itself.
    assert 0 <= sum(part.tokens for part in before.parts) - before.tokens < len(before.parts)
    assert before.tokens == again.tokens
    assert (before.last_input_tokens, before.HasField("last_cached_ratio")) == (10, False)
    # Only the question was not there yet.
    assert len(request.messages) == 1 + 3 + 1 + 1


@pytest.mark.parametrize(
    ("given", "model", "window"), [(0, "gpt-4o", 128_000), (9_000, "gpt-4o", 9_000), (0, "nobody-knows-it", 32_768)]
)
async def test_a_window_missing_in_the_provider_file_comes_from_the_built_in_table(
    serve: Serve, given: int, model: str, window: int
) -> None:
    async with serve(answer("seen"), modelConfig={"providerKey": "scripted", "model": model}) as suite:
        suite.llm.models = [llm_pb2.ModelInfo(provider_key="scripted", model=model, context_window_tokens=given)]
        await suite.ask()
        context = await suite.client.context(suite.chat_id)
    assert context.context_window_tokens == window
    assert context.output_tokens > 0


async def test_the_context_of_a_run_is_shown_during_and_after_it(serve: Serve) -> None:
    async with serve([*content("a"), 600.0], answer("b")) as suite:
        suite.llm.models = [INFO]
        contexts_during: list[agent_pb2.GetContextResponse] = []

        async def look_and_cancel(event: Event) -> None:
            contexts_during.append(await suite.client.context(CHAT, run_id=event["runId"]))
            await suite.client.cancel(event["runId"])

        run_id = (await ask(suite, ("content.delta", look_and_cancel)))[-1]["runId"]
        context_after = await suite.client.context(CHAT, run_id=run_id)
        with pytest.raises(NotFound):
            await suite.client.context(OTHER, run_id=run_id)
    assert contexts_during[0].run_id == context_after.run_id == run_id
    assert (count_by_kind(contexts_during[0])["messages"], count_by_kind(context_after)["messages"]) == (1, 2)


async def test_the_context_of_a_run_uses_the_runs_agent_version(serve: Serve) -> None:
    async with serve(answer("a"), react={"systemPrompt": "You look at things."}) as suite:
        suite.llm.models = [INFO]
        run_id = (await suite.ask())[-1]["runId"]
        before = await suite.client.context(suite.chat_id, run_id=run_id)
        (suite.agents / "react.json").unlink()
        async with asyncio.timeout(60):
            with suppress(NotFound):
                while True:  # Until the folder is reloaded.
                    await suite.client.context(suite.chat_id)
        after = await suite.client.context(suite.chat_id, run_id=run_id)
    assert [part.tokens for part in after.parts] == [part.tokens for part in before.parts]


async def test_the_context_of_an_unknown_chat_agent_or_run_is_not_found(serve: Serve) -> None:
    async with serve(answer("a"), modelConfig=MODEL) as suite:
        await suite.ask()
        for fields in ({"chat_id": OTHER}, {"agent_key": "nobody"}, {"run_id": OTHER}):
            with pytest.raises(NotFound):
                await suite.client.context(**{"chat_id": suite.chat_id} | fields)
        assert (await suite.client.context(suite.chat_id, agent_key="oneshot")).agent_key == "oneshot"


ANSWER = answer("fine")


async def test_pages_list_every_run_once_and_each_has_the_total_cost(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        for _ in range(5):
            await suite.ask()
        run_ids: list[str] = []
        token = ""
        for count in (2, 2, 1):
            page = await suite.client.chat_runs(suite.chat_id, page_size=2, page_token=token)
            assert len(page.runs) == count
            assert (page.runs_total, page.usage_total.model_calls, page.usage_total.input_tokens) == (5, 5, 50)
            assert not page.usage_total.HasField("cost_usd")
            run_ids += [run.run_id for run in page.runs]
            token = page.next_page_token
        assert (run_ids, token) == (suite.run_ids, "")
        assert [run.run_id for run in (await suite.client.chat_runs(suite.chat_id)).runs] == suite.run_ids


@pytest.mark.parametrize(("fields", "field"), [({"page_size": 201}, "pageSize"), ({"page_token": "x"}, "pageToken")])
async def test_an_invalid_page_size_or_token_is_refused(serve: Serve, fields: dict[str, Any], field: str) -> None:
    async with serve(ANSWER) as suite:
        await suite.ask()
        with pytest.raises(InvalidRequest, match=field):
            await suite.client.chat_runs(suite.chat_id, **fields)
