"""Decides whether a query may begin a run here, and which agent takes it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from headrace.errors import ChatBusy, Overloaded, PermissionDenied, QueueFull
from headrace.v1 import agent_pb2
from services.orchestrator.agents.registry import Registry
from services.orchestrator.lifecycle.admission.agent_router import AgentChoice
from services.orchestrator.lifecycle.admission.agent_selection import choose
from services.orchestrator.lifecycle.admission.earlier_messages import check_earlier_messages
from services.orchestrator.lifecycle.admission.fair_use import FairUse
from services.orchestrator.lifecycle.admission.key_limits import KeyLimits
from services.orchestrator.lifecycle.live_runs import LiveRuns, may_end
from services.orchestrator.lifecycle.start_result import stopping
from services.orchestrator.lifecycle.versions.choice import ChosenVersion, check_version, choose_version
from services.orchestrator.lifecycle.versions.pins import Pins
from services.orchestrator.peers import stored_runs
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.turn.output_form import check_output_format
from services.runtime.auth import identity
from services.runtime.capacity import RETRY_AFTER_S, Capacity
from services.runtime.randomness import new_uuid

WAITING_MAX = 8
"""Queries of one chat that may wait for its running one."""


@dataclass(frozen=True, slots=True)
class AdmittedQuery:
    query: agent_pb2.QueryRequest
    """The query, with everything filled in that its caller left out."""

    routed: AgentChoice
    chosen: ChosenVersion
    opens_chat: bool


class Admission:
    def __init__(
        self,
        live: LiveRuns,
        registry: Registry,
        pins: Pins,
        peers: Peers,
        capacity: Capacity,
        fair_use: FairUse,
        key_limits: KeyLimits,
    ) -> None:
        self._live = live
        self._pins = pins
        self._registry = registry
        self._peers = peers
        self._capacity = capacity
        self._fair_use = fair_use
        self._key_limits = key_limits
        self.is_draining = False
        """While True, only chats that have a run here are admitted."""
        self.is_handing_over = False

    def drain(self) -> None:
        self.is_draining = True
        self._fair_use.close(stopping())

    def hand_over(self) -> None:
        self.is_handing_over = True

    @asynccontextmanager
    async def admit(self, request: agent_pb2.QueryRequest) -> AsyncGenerator[AdmittedQuery]:
        """Begin the query's run inside the block, when it is the tenant's turn.

        Raises:
            NotFound, InvalidRequest: The agent is missing, the wanted form is none, or a result lacks its call.
            PermissionDenied: The agent is a tenant's own, and names what is not granted to it.
            NotFound, PermissionDenied: The chat is not the caller's to ask in, or its runs not the caller's to end.
            ChatBusy, QueueFull, Overloaded, QuotaExceeded: There is no room for the run.
        """
        check_output_format(request)
        check_earlier_messages(request)
        check_version(request)
        await self._check_access(request.chat_id)
        async with AsyncExitStack() as stack:
            if not self._live.of_chat(request.chat_id):
                self._check_capacity(request.chat_id)
                await stack.enter_async_context(self._fair_use.turn(identity.require_identity().tenant))
            routed = await choose(request, self._live.of_chat(request.chat_id), self._registry, self._peers)
            query = agent_pb2.QueryRequest()
            query.CopyFrom(request)
            query.chat_id = request.chat_id or new_uuid()
            query.request_id = request.request_id or new_uuid()
            query.agent_key = routed.agent.key
            query.role = request.role or "user"
            chosen = await choose_version(self._pins, query, routed.agent, self._registry.beside(routed.agent))
            # An old version, and what a query tries, may name what the agent in force does not.
            self._registry.check_granted(chosen.agent)
            self._check_capacity(query.chat_id)
            self._check_busy(query)
            self._key_limits.check(query.request_id)
            yield AdmittedQuery(query, routed, chosen, opens_chat=not request.chat_id)

    async def _check_access(self, chat_id: str) -> None:
        """Refuse who may not know of the runs that others have in the chat; the rest memory decides with the query."""
        caller = identity.require_identity()
        if any(run.state.is_stored and run.identity != caller for run in self._live.of_chat(chat_id)):
            await stored_runs.check_participant(self._peers, chat_id)

    def _check_capacity(self, chat_id: str) -> None:
        # A chat that has a run here has no other place: its next one is handed over with it.
        if self.is_handing_over or (self.is_draining and not self._live.has_chat(chat_id)):
            raise stopping()
        if self._capacity.has_room_for(identity.require_identity().tenant):
            return
        if self._capacity.used >= self._capacity.size:
            raise Overloaded(
                f"{self._capacity.size} runs are live already; try again later", retry_after_s=RETRY_AFTER_S
            )
        raise QueueFull(
            "the tenant has as many live runs as are left for all others; answer those that wait for people, or try"
            " again later",
            retry_after_s=RETRY_AFTER_S,
        )

    def _check_busy(self, query: agent_pb2.QueryRequest) -> None:
        earlier = self._live.of_chat(query.chat_id)
        if not earlier or any(run.query.request_id == query.request_id for run in earlier):
            return
        caller = identity.require_identity()
        if query.when_busy in ("interrupt", "rollback") and not all(may_end(run, caller) for run in earlier):
            raise PermissionDenied(
                f"whenBusy {query.when_busy} would end another user's run; the chat's owner may", runId=earlier[0].id
            )
        if query.when_busy == "reject":
            raise ChatBusy("the chat has a run already; wait, cancel it or enqueue", runId=earlier[0].id)
        if len(earlier) > WAITING_MAX:
            raise QueueFull(f"{WAITING_MAX} queries of this chat are waiting already", runId=earlier[0].id)
