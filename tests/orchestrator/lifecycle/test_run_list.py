"""ListRuns: pages of a chat's runs, oldest first, and what all of them have cost."""

from __future__ import annotations

import pytest

from headrace.errors import InvalidRequest
from headrace.streams import rpc_errors
from headrace.v1 import agent_pb2, agent_pb2_grpc
from services.runtime.rpc.channels import open_channel
from tests.support.orchestrator import Serve, Suite
from tests.support.orchestrator.steps import answer

ANSWER = answer("fine")


async def listed(suite: Suite, **fields: object) -> agent_pb2.ListRunsResponse:
    request = agent_pb2.ListRunsRequest(chat_id=suite.chat_id, **fields)  # pyright: ignore[reportArgumentType] - fields of the request
    async with open_channel(suite.address) as channel:
        with rpc_errors():
            return await agent_pb2_grpc.AgentServiceStub(channel).ListRuns(request, timeout=100)


async def test_pages_give_every_run_once_and_each_the_whole_cost(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        for _ in range(5):
            await suite.ask()
        found: list[str] = []
        token = ""
        for count in (2, 2, 1):
            page = await listed(suite, page_size=2, page_token=token)
            assert len(page.runs) == count
            assert (page.runs_total, page.usage_total.model_calls, page.usage_total.input_tokens) == (5, 5, 50)
            assert not page.usage_total.HasField("cost_usd")
            found += [run.run_id for run in page.runs]
            token = page.next_page_token
        assert (found, token) == (suite.run_ids, "")
        assert [run.run_id for run in (await listed(suite)).runs] == suite.run_ids


@pytest.mark.parametrize(("fields", "field"), [({"page_size": 201}, "pageSize"), ({"page_token": "x"}, "pageToken")])
async def test_a_page_that_cannot_be_is_refused(serve: Serve, fields: dict[str, object], field: str) -> None:
    async with serve(ANSWER) as suite:
        await suite.ask()
        with pytest.raises(InvalidRequest, match=field):
            await listed(suite, **fields)
