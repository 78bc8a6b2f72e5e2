"""Lines as an orchestrator writes them, short enough to read in a test."""

from __future__ import annotations

import uuid
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from google.protobuf.message_factory import GetMessageClass

from headrace.contract import SERVICES
from headrace.streams import rpc_errors
from headrace.v1 import agent_pb2, common_pb2, gates_pb2, llm_pb2, memory_pb2, operator_pb2, spend_pb2
from headrace.v1.audit_pb2_grpc import AuditServiceStub
from headrace.v1.data_pb2_grpc import DataStoreServiceStub
from headrace.v1.keys_pb2_grpc import KeyServiceStub
from headrace.v1.memory_pb2_grpc import MemoryServiceStub
from headrace.v1.schedule_pb2_grpc import ScheduleServiceStub
from headrace.v1.spend_pb2_grpc import SpendServiceStub
from headrace.v1.webhook_pb2_grpc import WebhookServiceStub
from services.memory.data.holds import HoldsInForce
from services.memory.facts.changes import add_fact
from services.memory.storage.records.user_facts import make_fact
from services.runtime.auth.identity import Identity, acting_as

if TYPE_CHECKING:
    import grpc

    from headrace.v1.audit_pb2_grpc import AuditServiceAsyncStub
    from headrace.v1.data_pb2_grpc import DataStoreServiceAsyncStub
    from headrace.v1.keys_pb2_grpc import KeyServiceAsyncStub
    from headrace.v1.memory_pb2_grpc import MemoryServiceAsyncStub
    from headrace.v1.schedule_pb2_grpc import ScheduleServiceAsyncStub
    from headrace.v1.spend_pb2_grpc import SpendServiceAsyncStub
    from headrace.v1.webhook_pb2_grpc import WebhookServiceAsyncStub
    from services.memory.storage.engine import Engine

_SERVICES = {
    "stub": SERVICES["MemoryService"],
    "schedules": SERVICES["ScheduleService"],
    "spend": SERVICES["SpendService"],
    "webhooks": SERVICES["WebhookService"],
    "keys": SERVICES["KeyService"],
    "audit": SERVICES["AuditService"],
    "data": SERVICES["DataStoreService"],
}
RPCS = {
    method.name: (stub, GetMessageClass(method.input_type))
    for stub, service in _SERVICES.items()
    for method in service.methods
}
"""Each RPC by its name: the stub that has it, and the type of its request."""

USAGE = common_pb2.Usage(input_tokens=10, output_tokens=4, model_calls=1, tool_calls=1)


def new_id() -> str:
    return str(uuid.uuid4())


@dataclass(frozen=True, slots=True)
class Memory:
    """A running service as its callers see it; its errors are raised here."""

    stub: MemoryServiceAsyncStub
    schedules: ScheduleServiceAsyncStub
    spend: SpendServiceAsyncStub
    webhooks: WebhookServiceAsyncStub
    keys: KeyServiceAsyncStub
    audit: AuditServiceAsyncStub
    data: DataStoreServiceAsyncStub
    callers: tuple[Identity | None, ...] = ()
    """The caller of the methods below, unless it is the one the test is `acting_as`."""

    @classmethod
    def reach(cls, channel: grpc.aio.Channel) -> Memory:
        return cls(
            MemoryServiceStub(channel),
            ScheduleServiceStub(channel),
            SpendServiceStub(channel),
            WebhookServiceStub(channel),
            KeyServiceStub(channel),
            AuditServiceStub(channel),
            DataStoreServiceStub(channel),
        )

    async def call(self, rpc: str, /, **fields: Any) -> Any:
        """Call any RPC of the service by its name."""
        stub, request = RPCS[rpc]
        with acting_as(*self.callers) if self.callers else nullcontext(), rpc_errors():
            return await getattr(getattr(self, stub), rpc)(request(**fields))

    async def call_as(self, who: Identity | None, rpc: str, /, **fields: Any) -> Any:
        return await self.acting_as(who).call(rpc, **fields)

    def acting_as(self, who: Identity | None) -> Memory:
        """Return the same service, called by somebody else."""
        return replace(self, callers=(who,))

    async def append(
        self, chat_id: str, run_id: str, *lines: memory_pb2.LogLine, generation: int = 0, request_id: str = ""
    ) -> memory_pb2.AppendResponse:
        return await self.call(
            "Append",
            chat_id=chat_id,
            run_id=run_id,
            generation=generation,
            request_id=request_id or new_id(),
            lines=lines,
        )

    async def begin(self, message: str = "hello", chat_id: str = "", **query: Any) -> tuple[str, str]:
        """Commit the query of a new run, in a new chat if none is given."""
        chat_id, run_id = chat_id or new_id(), new_id()
        await self.append(chat_id, run_id, query_line(message, **query))
        return chat_id, run_id

    async def begin_with(
        self, *lines: memory_pb2.LogLine, message: str = "hello", chat_id: str = "", **query: Any
    ) -> tuple[str, str]:
        """Begin a run, and append `lines` to it together."""
        chat_id, run_id = await self.begin(message, chat_id, **query)
        await self.append(chat_id, run_id, *lines)
        return chat_id, run_id

    async def begin_and_end(self, message: str = "hello", chat_id: str = "") -> tuple[str, str]:
        """Hold a run of only a query and its end."""
        return await self.begin_with(run_line(), message=message, chat_id=chat_id)

    async def context(self, chat_id: str, run_id: str, **fields: Any) -> list[llm_pb2.Message]:
        return list((await self.call("LoadContext", chat_id=chat_id, run_id=run_id, **fields)).messages)

    async def chat(self, **fields: Any) -> memory_pb2.GetChatResponse:
        return await self.call("GetChat", **fields)

    async def chats(self, **fields: Any) -> memory_pb2.ListChatsResponse:
        return await self.call("ListChats", **fields)

    async def revert(self, chat_id: str, checkpoint_id: int, **fields: Any) -> int:
        return (await self.call("Revert", chat_id=chat_id, checkpoint_id=checkpoint_id, **fields)).n

    async def checkpoints(self, chat_id: str, **fields: Any) -> memory_pb2.ListCheckpointsResponse:
        return await self.call("ListCheckpoints", chat_id=chat_id, **fields)

    async def fork(self, chat_id: str, **fields: Any) -> str:
        return (await self.call("ForkChat", chat_id=chat_id, **fields)).chat_id

    async def state(self, chat_id: str, context_id: str = "") -> tuple[int, str]:
        reply = await self.call("GetState", chat_id=chat_id, context_id=context_id)
        return reply.version, reply.state

    async def update_state(self, chat_id: str, expected: int, state: str, **fields: Any) -> int:
        return (
            await self.call("UpdateState", chat_id=chat_id, expected_version=expected, state=state, **fields)
        ).version

    async def acquire(self, chat_id: str, run_id: str, owner: str, ttl_ms: int = 15_000) -> int:
        return (await self.call("AcquireLease", chat_id=chat_id, run_id=run_id, owner=owner, ttl_ms=ttl_ms)).generation

    async def renew(self, run_id: str, generation: int, ttl_ms: int = 15_000) -> int:
        return (await self.call("RenewLease", run_id=run_id, generation=generation, ttl_ms=ttl_ms)).expires_at

    async def release(self, run_id: str, generation: int, due_at: int = 0) -> None:
        await self.call("ReleaseLease", run_id=run_id, generation=generation, due_at=due_at)

    async def put_blob(self, chat_id: str, data: bytes, mime_type: str = "image/png") -> str:
        return (await self.call("PutBlob", chat_id=chat_id, mime_type=mime_type, data=data)).blob_id

    async def blob(self, chat_id: str, blob_id: str) -> memory_pb2.GetBlobResponse:
        return await self.call("GetBlob", chat_id=chat_id, blob_id=blob_id)

    async def search(self, query: str, scope: str = "", limit: int = 0) -> list[memory_pb2.SearchHit]:
        return list((await self.call("Search", query=query, scope=scope, limit=limit)).hits)

    async def tenant_runs(self, **fields: Any) -> operator_pb2.OperatorListRunsResponse:
        return await self.call("ListRuns", **fields)

    async def gates(self, **fields: Any) -> gates_pb2.ListGatesResponse:
        return await self.call("ListGates", **fields)

    async def gate(self, run_id: str, gate_id: str) -> gates_pb2.Gate:
        return (await self.call("GetGate", run_id=run_id, gate_id=gate_id)).gate

    async def grants(self, **fields: Any) -> gates_pb2.ListGrantsResponse:
        return await self.call("ListGrants", **fields)

    async def export_gates(self, **fields: Any) -> list[str]:
        with rpc_errors():
            request = gates_pb2.ExportGatesRequest(**fields)
            return [one.line async for one in self.stub.ExportGates(request)]

    async def revoke_grant(self, chat_id: str, grant_id: str) -> str:
        return (await self.call("RevokeGrant", chat_id=chat_id, grant_id=grant_id)).status

    async def usage(self, **fields: Any) -> spend_pb2.GetUsageResponse:
        return await self.call("GetUsage", **fields)

    async def remember(self, text: str, request_id: str = "", **fields: Any) -> str:
        return (await self.call("Remember", text=text, request_id=request_id, **fields)).fact_id

    async def list_facts(self, **fields: Any) -> list[memory_pb2.Fact]:
        return list((await self.call("ListFacts", **fields)).facts)

    async def recall(self, query: str, **fields: Any) -> list[str]:
        """Return the texts of facts, best first."""
        hits = (await self.call("RecallFacts", query=query, **fields)).hits
        return [hit.fact.text for hit in hits]

    async def update_fact(self, fact_id: str, **fields: Any) -> memory_pb2.Fact:
        return (await self.call("UpdateFact", fact_id=fact_id, **fields)).fact

    async def delete_fact(self, fact_id: str) -> memory_pb2.Fact:
        return (await self.call("DeleteFact", fact_id=fact_id)).fact

    async def export_facts(self) -> list[memory_pb2.Fact]:
        return list((await self.call("ExportFacts")).facts)

    async def delete(self, chat_id: str) -> None:
        await self.call("DeleteChat", chat_id=chat_id)

    async def list_unfinished(self) -> list[memory_pb2.UnfinishedRun]:
        return list((await self.call("ListUnfinishedRuns")).runs)


async def read_pages(memory: Memory, rpc: str, items: str, size: int, **fields: Any) -> list[list[Any]]:
    """Read a list to its end, `size` items at a time, and return the items of each page."""
    pages: list[list[Any]] = []
    token = ""
    while not pages or token:
        page = await memory.call(rpc, page_size=size, page_token=token, **fields)
        pages.append([*getattr(page, items)])
        token = page.next_page_token
    return pages


async def store_fact(engine: Engine, owner: Identity, text: str, request_id: str) -> str:
    """Store a fact without a service, and return its id."""
    fact = make_fact(owner, text, request_id)
    make = partial(add_fact, fact=fact, replaces=(), allows_tenant=False, holds=HoldsInForce(()))
    return (await engine.records.facts.change(owner, make)).uuid


def query_line(message: str = "hello", **query: Any) -> memory_pb2.LogLine:
    fields: dict[str, Any] = {"request_id": new_id(), "agent_key": "writer", "role": "user"} | query
    request = agent_pb2.QueryRequest(message=message, **fields)
    return memory_pb2.LogLine(query=memory_pb2.QueryLine(query=request, agent_hash="abc"))


def step_line(*messages: memory_pb2.LogMessage, stage: str = "react", **step: Any) -> memory_pb2.LogLine:
    return memory_pb2.LogLine(step=memory_pb2.StepLine(stage=stage, seq=1, messages=messages, **step))


def run_line(
    state: str = "completed", seq: int = 99, usage: common_pb2.Usage = USAGE, **run: Any
) -> memory_pb2.LogLine:
    end = memory_pb2.RunLine(state=state, usage=usage, events=events(seq), **run)
    return memory_pb2.LogLine(run=end)


def event_line(**delta: Any) -> memory_pb2.LogLine:
    return memory_pb2.LogLine(event=memory_pb2.EventLine(event=agent_pb2.AgentDelta(**delta)))


def events(last: int) -> memory_pb2.EventRange:
    return memory_pb2.EventRange(first_seq=last, last_seq=last)
