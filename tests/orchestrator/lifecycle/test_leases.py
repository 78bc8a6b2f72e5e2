"""A process renews the leases of its runs, and gives up those it has lost."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from headrace.v1 import agent_pb2, memory_pb2
from services.orchestrator.agents.definition import parse_agent
from services.orchestrator.lifecycle import leases
from services.orchestrator.lifecycle.held_runs import HeldRuns
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.run import Run, RunServices
from services.runtime.rpc.channels import open_channel
from tests.support.orchestrator import CHAT, Serve, Suite, content
from tests.support.waiting import wait_until

AGENT = b'{"mode":"ONESHOT","modelConfig":{"providerKey":"scripted","model":"m"},"plain":{}}'


async def lease(suite: Suite) -> memory_pb2.UnfinishedRun:
    return (await suite.memory.ListUnfinishedRuns(memory_pb2.ListUnfinishedRunsRequest(), None)).runs[0]


async def test_leases_are_renewed_until_they_are_lost(serve: Serve) -> None:
    async with (
        serve([*content("Hel"), 3600.0]) as suite,
        open_channel(suite.config.memory_address) as memory,
        suite.client.ask("hi", agent_key="oneshot", chat_id=CHAT, on_disconnect="cancel") as deltas,
    ):
        await anext(deltas)
        before = await lease(suite)
        assert before.owner == "127.0.0.1:0"
        peers = Peers.from_channels(llm_gateway=memory, memory=memory, tools=memory)
        run = Run(
            before.run_id, parse_agent(AGENT, "oneshot"), agent_pb2.QueryRequest(chat_id=CHAT), RunServices(peers)
        )
        run.state.store()
        owner = leases.Owner(before.owner, 0.06)
        keeping = asyncio.create_task(leases.keep(lambda: [run], HeldRuns(), peers, owner))
        while (after := await lease(suite)).lease_expires_at == before.lease_expires_at:
            await asyncio.sleep(0.02)
        assert (after.owner, after.generation) == (before.owner, 0)
        request = memory_pb2.AcquireLeaseRequest(chat_id=CHAT, run_id=run.id, owner="127.0.0.1:0", ttl_ms=60_000)
        await suite.memory.AcquireLease(request, None)
        await wait_until(lambda: run.control.is_given_up)
        assert run.log.is_lost
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping
