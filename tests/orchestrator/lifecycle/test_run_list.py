"""ListRuns: pages of a chat's runs, oldest first, and what all of them have cost."""

from __future__ import annotations

import pytest

from headrace.errors import InvalidRequest
from headrace.streams import rpc_errors
from headrace.v1 import agent_pb2, agent_pb2_grpc
from services.runtime.rpc.channels import open_channel
from tests.orchestrator.conftest import House, Open, content, finish

ANSWER = [*content("fine"), *finish()]


async def listed(it: House, **fields: object) -> agent_pb2.ListRunsResponse:
    request = agent_pb2.ListRunsRequest(chat_id=it.chat_id, **fields)  # pyright: ignore[reportArgumentType] - fields of the request
    async with open_channel(it.address) as channel:
        with rpc_errors():
            return await agent_pb2_grpc.AgentServiceStub(channel).ListRuns(request, timeout=100)


async def test_pages_give_every_run_once_and_each_the_whole_cost(house: Open) -> None:
    async with house(ANSWER) as it:
        for _ in range(5):
            await it.ask()
        found: list[str] = []
        token = ""
        for count in (2, 2, 1):
            page = await listed(it, page_size=2, page_token=token)
            assert len(page.runs) == count
            assert (page.runs_total, page.usage_total.model_calls, page.usage_total.input_tokens) == (5, 5, 50)
            assert not page.usage_total.HasField("cost_usd")
            found += [run.run_id for run in page.runs]
            token = page.next_page_token
        assert (found, token) == (it.run_ids, "")
        assert [run.run_id for run in (await listed(it)).runs] == it.run_ids


@pytest.mark.parametrize(("fields", "field"), [({"page_size": 201}, "pageSize"), ({"page_token": "x"}, "pageToken")])
async def test_a_page_that_cannot_be_is_refused(house: Open, fields: dict[str, object], field: str) -> None:
    async with house(ANSWER) as it:
        await it.ask()
        with pytest.raises(InvalidRequest, match=field):
            await listed(it, **fields)
