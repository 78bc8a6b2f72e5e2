"""The RPC of those who operate: all runs of a tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import grpc

from headrace.errors import InvalidRequest
from headrace.v1 import operator_pb2
from headrace.v1.memory_pb2_grpc import MemoryServiceServicer
from services.memory.storage.index_progress import describe_progress
from services.memory.storage.run_query import RunEntry, RunQuery, parse_run_page
from services.runtime.auth import identity
from services.runtime.clock import now_ms

if TYPE_CHECKING:
    from services.memory.storage.engine import Engine

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


class OperatorRpcs(MemoryServiceServicer):
    """The part of the memory service that lists runs over chats and users."""

    _engine: Engine

    async def ListRuns(
        self, request: operator_pb2.OperatorListRunsRequest, context: Context
    ) -> operator_pb2.OperatorListRunsResponse:
        tenant = identity.require_scope("operate").tenant
        for field in ("older_than_ms", "began_after", "cost_at_least_nano_usd"):
            if getattr(request, field) < 0:
                raise InvalidRequest.of(request.DESCRIPTOR.fields_by_name[field].json_name, "must not be negative")
        size, after = parse_run_page(request.page_size, request.page_token)
        progress = self._engine.index.get_progress()
        runs, next_page_token = await self._engine.index.list_runs(
            RunQuery(
                tenant,
                size,
                after,
                state=request.state,
                agent_key=request.agent_key,
                user=request.user,
                began_before=max(now_ms() - request.older_than_ms, 0) if request.HasField("older_than_ms") else None,
                began_after=request.began_after if request.HasField("began_after") else None,
                cost_min=request.cost_at_least_nano_usd if request.HasField("cost_at_least_nano_usd") else None,
                run_ids=request.run_ids,
            )
        )
        return operator_pb2.OperatorListRunsResponse(
            runs=map(_make_run, runs), next_page_token=next_page_token, index_progress=describe_progress(progress)
        )


def _make_run(entry: RunEntry) -> operator_pb2.OperatorRun:
    return operator_pb2.OperatorRun(
        run_id=entry.run_id,
        chat_id=entry.chat_id,
        user=entry.user,
        agent_key=entry.agent_key,
        state=entry.state,
        reason=entry.reason,
        began_at=entry.began_at,
        updated_at=entry.updated_at,
        model_calls=entry.model_calls,
        input_tokens=entry.input_tokens,
        output_tokens=entry.output_tokens,
        cost_nano_usd=entry.cost_nano_usd,
        owner=entry.owner,
        lease_expires_at=entry.lease_expires_at,
        credential=entry.credential,
        chat_owner=entry.chat_owner,
    )
