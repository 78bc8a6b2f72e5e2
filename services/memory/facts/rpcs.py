"""The RPCs of facts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.errors import InvalidRequest
from headrace.v1 import memory_pb2
from headrace.v1.memory_pb2_grpc import MemoryServiceServicer
from services.memory.storage.paging import PAGE_DEFAULT, PAGE_MAX
from services.memory.storage.records.user_facts import Fact
from services.memory.storage.search import read_limit

if TYPE_CHECKING:
    from services.memory.facts.store import FactStore
    from services.runtime.rpc.interceptors import Context

EXPORT_PAGE = 1000
"""Facts of one answer: 8 MiB of the longest ones."""

N_DIGITS_MAX = 15


class FactRpcs(MemoryServiceServicer):
    """The part of the memory service that serves `_facts`."""

    _facts: FactStore

    async def Remember(self, request: memory_pb2.RememberRequest, context: Context) -> memory_pb2.RememberResponse:
        fact = await self._facts.add(request)
        return memory_pb2.RememberResponse(fact_id=fact.uuid, fact=make_message(fact))

    async def ListFacts(self, request: memory_pb2.ListFactsRequest, context: Context) -> memory_pb2.ListFactsResponse:
        if not 0 <= request.page_size <= PAGE_MAX:
            raise InvalidRequest.of("pageSize", f"must be 1 to {PAGE_MAX}, or 0 for {PAGE_DEFAULT}")
        before = _read_token(request.page_token)
        facts = await self._facts.list_seen(request.scope, request.agent_key, include_ended=request.include_ended)
        left = [fact for fact in reversed(facts) if before is None or fact.n < before]
        page, token = _split_page(left, request.page_size or PAGE_DEFAULT)
        return memory_pb2.ListFactsResponse(facts=map(make_message, page), next_page_token=token)

    async def RecallFacts(
        self, request: memory_pb2.RecallFactsRequest, context: Context
    ) -> memory_pb2.RecallFactsResponse:
        found = await self._facts.recall(request.query, request.agent_key, read_limit(request.limit))
        hits = [memory_pb2.FactHit(fact=make_message(fact), score=score) for fact, score in found]
        return memory_pb2.RecallFactsResponse(hits=hits)

    async def UpdateFact(
        self, request: memory_pb2.UpdateFactRequest, context: Context
    ) -> memory_pb2.UpdateFactResponse:
        text = request.text if request.HasField("text") else None
        topic = request.topic if request.HasField("topic") else None
        fact = await self._facts.update(request.fact_id, text, topic)
        return memory_pb2.UpdateFactResponse(fact=make_message(fact))

    async def DeleteFact(
        self, request: memory_pb2.DeleteFactRequest, context: Context
    ) -> memory_pb2.DeleteFactResponse:
        return memory_pb2.DeleteFactResponse(fact=make_message(await self._facts.delete(request.fact_id)))

    async def ExportFacts(
        self, request: memory_pb2.ExportFactsRequest, context: Context
    ) -> memory_pb2.ExportFactsResponse:
        after = _read_token(request.page_token) or 0
        page, token = _split_page([fact for fact in await self._facts.list_own() if fact.n > after], EXPORT_PAGE)
        return memory_pb2.ExportFactsResponse(facts=map(make_message, page), next_page_token=token)


def make_message(fact: Fact) -> memory_pb2.Fact:
    source = fact.source
    return memory_pb2.Fact(
        fact_id=fact.uuid,
        text=fact.text,
        scope=fact.scope,
        agent_key=fact.agent_key,
        topic=fact.topic,
        source=memory_pb2.FactSource(chat_id=source.chat_id, run_id=source.run_id, n=source.n)
        if source.chat_id
        else None,
        created_at=fact.created_at or fact.updated_at,
        updated_at=fact.updated_at,
        ended_at=fact.ended_at,
        replaced_by=fact.replaced_by,
        deleted_at=fact.deleted_at,
    )


def _read_token(token: str) -> int | None:
    """Return the number of the last fact shown; None for the first page."""
    if not token:
        return None
    if not (token.isascii() and token.isdecimal() and len(token) <= N_DIGITS_MAX):
        raise InvalidRequest.of("pageToken", "must be the nextPageToken of an earlier answer")
    return int(token)


def _split_page(facts: Sequence[Fact], size: int) -> tuple[Sequence[Fact], str]:
    page = facts[:size]
    return page, str(page[-1].n) if len(facts) > size else ""
