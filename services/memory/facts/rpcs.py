"""The RPCs of facts, and the facts that the current user sees and may change."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import structlog
from msgspec.structs import replace

from headrace.errors import HeadraceError, InvalidRequest, NotFound
from headrace.v1 import memory_pb2
from headrace.v1.memory_pb2_grpc import MemoryServiceServicer
from services.memory.facts.changes import add_fact, delete_fact, update_fact
from services.memory.facts.recall import keep_vectors, rank_facts
from services.memory.storage.paging import match_page, split_page
from services.memory.storage.records.user_facts import Fact, Source, make_fact
from services.memory.storage.search import Hit, Question, read_limit
from services.runtime.auth import identity
from services.runtime.formats.same_fields import copy_fields

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from services.memory.chats.access import ChatAccess
    from services.memory.data.holds import HoldsInForce
    from services.memory.facts.recall import FactVectors
    from services.memory.storage.records.user_facts import FactChange, UserFacts
    from services.runtime.rpc.interceptors import Context

EXPORT_PAGE = 1000
"""Maximum facts per response, 8 MiB of the longest ones."""

_NUMBER = re.compile(r"[0-9]{1,15}")
"""A page token: the number of the last fact before the page."""


class FactRpcs(MemoryServiceServicer):
    """RPCs of the memory service for facts."""

    _facts: FactStore

    async def Remember(self, request: memory_pb2.RememberRequest, context: Context) -> memory_pb2.RememberResponse:
        fact = await self._facts.add(request)
        return memory_pb2.RememberResponse(fact_id=fact.uuid, fact=make_message(fact))

    async def ListFacts(self, request: memory_pb2.ListFactsRequest, context: Context) -> memory_pb2.ListFactsResponse:
        size, match = match_page(request.page_size, request.page_token, _NUMBER)
        facts = await self._facts.list_seen(request.scope, request.agent_key, include_ended=request.include_ended)
        left = [fact for fact in reversed(facts) if match is None or fact.n < int(match[0])]
        page, token = split_page(left, size, _get_place)
        return memory_pb2.ListFactsResponse(facts=map(make_message, page), next_page_token=token)

    async def RecallFacts(
        self, request: memory_pb2.RecallFactsRequest, context: Context
    ) -> memory_pb2.RecallFactsResponse:
        found = await self._facts.recall(request.query, request.scope, request.agent_key, read_limit(request.limit))
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
        _, match = match_page(0, request.page_token, _NUMBER)
        after = int(match[0]) if match else 0
        left = [fact for fact in await self._facts.list_own() if fact.n > after]
        page, token = split_page(left, EXPORT_PAGE, _get_place)
        return memory_pb2.ExportFactsResponse(facts=map(make_message, page), next_page_token=token)


def make_message(fact: Fact) -> memory_pb2.Fact:
    source = copy_fields(fact.source, memory_pb2.FactSource) if fact.source.chat_id else None
    created_at = fact.created_at or fact.updated_at
    return copy_fields(fact, memory_pb2.Fact, fact_id=fact.uuid, source=source, created_at=created_at)


def _get_place(fact: Fact) -> tuple[int]:
    return (fact.n,)


OF_AGENT = ("agent", "plan")
"""Scopes of facts that have an agent."""

ReadHolds: TypeAlias = "Callable[[], Awaitable[HoldsInForce]]"

log = structlog.get_logger()


class FactStore:
    def __init__(
        self,
        facts: UserFacts,
        access: ChatAccess,
        read_holds: ReadHolds,
        *,
        allows_tenant: bool,
        vectors: FactVectors | None = None,
    ) -> None:
        """Work on `facts`; with `allows_tenant` every user may write the tenant's. Without `vectors` facts are found
        only by their words."""
        self._facts = facts
        self._access = access
        self._read_holds = read_holds
        self._allows_tenant = allows_tenant
        self._vectors = vectors

    async def add(self, request: memory_pb2.RememberRequest) -> Fact:
        if (request.scope in OF_AGENT) != bool(request.agent_key):
            raise InvalidRequest.of("agentKey", "is required with scope agent or plan, and is given with no other")
        owner = identity.require_identity()
        fact = make_fact(owner, _clean_text(request.text), request.request_id.replace("\0", ""))
        fact = replace(
            fact,
            scope=request.scope or "user",
            agent_key=request.agent_key.replace("\0", ""),
            topic=_clean_topic(request.topic),
            source=await self._read_source(request.source),
        )
        return await self._change(partial(add_fact, fact=fact, replaces=list(request.replaces)))

    async def update(self, fact_id: str, text: str | None, topic: str | None) -> Fact:
        text = None if text is None else _clean_text(text)
        topic = None if topic is None else _clean_topic(topic)
        return await self._change(partial(update_fact, fact_id=fact_id, text=text, topic=topic))

    async def delete(self, fact_id: str) -> Fact:
        return await self._change(partial(delete_fact, fact_id=fact_id))

    async def _change(self, make: Callable[..., FactChange]) -> Fact:
        make = partial(make, allows_tenant=self._allows_tenant, holds=await self._read_holds())
        return await self._facts.change(identity.require_identity(), make)

    async def list_seen(
        self, scope: str, agent_key: str, *, include_ended: bool, with_vectors: bool = False
    ) -> list[Fact]:
        """List the facts that are not deleted, in storage order, optionally with vectors.

        Without a `scope`, plans are left out.
        """
        return [
            fact
            for fact in await self._facts.list_visible(identity.require_identity(), with_vectors=with_vectors)
            if not fact.deleted_at
            and (include_ended or fact.is_valid)
            and (fact.scope == scope if scope else fact.scope != "plan")
            and (not agent_key or fact.scope not in OF_AGENT or fact.agent_key == agent_key)
        ]

    async def list_own(self) -> list[Fact]:
        """List everything the user has stored, including tombstones, in storage order."""
        owner = identity.require_identity()
        return [fact for fact in await self._facts.list_visible(owner) if fact.owner == owner]

    async def recall(self, query: str, scope: str, agent_key: str, limit: int) -> list[tuple[Fact, float]]:
        vectors = self._vectors if scope != "plan" else None
        facts = await self.list_seen(scope, agent_key, include_ended=False, with_vectors=vectors is not None)
        if vectors is None or not facts:
            return (await asyncio.to_thread(rank_facts, query, facts, are_plans=scope == "plan"))[:limit]
        vector, made = await vectors.embed(query, facts)
        if made:
            await self._keep_vectors(made)
        facts = [made.get(fact.uuid, fact) for fact in facts]
        ranked = await asyncio.to_thread(rank_facts, query, facts)
        return (await asyncio.to_thread(vectors.add_similar, vector, facts, ranked) if vector else ranked)[:limit]

    async def add_hits(self, query: str, question: Question, hits: Sequence[Hit]) -> list[Hit]:
        """Put matching facts before the `hits` of chats, because a person or model chose to keep them."""
        # By words alone: where the texts of a model are all alike, its vectors would find facts and never a chat.
        facts = await self.list_seen("", "", include_ended=False)
        ranked = await asyncio.to_thread(rank_facts, query, facts)
        base = max((hit.score for hit in hits), default=0.0)
        found = [
            Hit("", "", "", question.make_excerpt(fact.text), base + score)
            for fact, score in ranked[: question.hits_max]
        ]
        return [*found, *hits][: question.hits_max]

    async def _keep_vectors(self, made: Mapping[str, Fact]) -> None:
        try:
            await self._facts.change(identity.require_identity(), partial(keep_vectors, made=made))
        except HeadraceError as error:  # such as a full disk; the question is answered all the same
            log.warning("vectors of facts not stored", reason=error.reason)

    async def _read_source(self, source: memory_pb2.FactSource) -> Source:
        """Return the validated source of a fact. Raises NotFound for a chat or run that is not the user's."""
        chat_id = source.chat_id
        if chat_id:
            await self._access.load_working_chat(chat_id)
        if source.run_id:
            found = await self._access.find_chat_of_run(source.run_id)
            if found is None or chat_id not in ("", found):
                raise NotFound(f"run {source.run_id} does not exist", runId=source.run_id)
            chat_id = found
        n = source.n
        if source.run_id and not n:  # the run's last line so far: the call, where a model remembers something
            chat = await self._access.load_working_chat(chat_id)
            n = next((line.n for line in reversed(chat.log) if line.run_id == source.run_id), 0)
        return Source.create(chat_id, source.run_id, n)


def _clean_text(text: str) -> str:
    text = text.replace("\0", "").strip()  # NUL is in no text of a database
    if not text:
        raise InvalidRequest.of("text", "must not be empty")
    return text


def _clean_topic(topic: str) -> str:
    return " ".join(topic.replace("\0", "").split())
