"""Every limit that holds for a user of a tenant: the orchestrator's own, budgets, and what the peers say of theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from headrace.errors import HeadraceError, InvalidRequest, NotFound
from headrace.v1 import limits_pb2
from services.orchestrator.agents.registry import Registry
from services.orchestrator.config import Config
from services.orchestrator.lifecycle.admission.admission import WAITING_MAX
from services.orchestrator.lifecycle.admission.fair_use import BEGINNING_MAX, FairUse, NoLimits
from services.orchestrator.lifecycle.live_runs import LiveRuns
from services.orchestrator.operating.budget_limits import BUDGETS_MAX, PEER_TIMEOUT_S, measure_budgets
from services.orchestrator.peers import embeddings
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.budgets.file import BudgetsFile
from services.orchestrator.run.control.steer_queue import UNHEARD_MAX
from services.runtime.auth.identity import Identity, acting_as
from services.runtime.auth.key_calls import MINUTE_S
from services.runtime.auth.stored_keys import StoredKeys
from services.runtime.capacity import Capacity
from services.runtime.process.limits import find_opening_time, finish_limits, make_configured, make_fixed
from services.runtime.rpc.call_ids import forward_metadata
from services.runtime.rpc.channels import EDGE_MESSAGE_BYTES_MAX
from services.runtime.rpc.peer_calls import translating_peer_errors

NAME = "orchestrator"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsInForce:
    config: Config
    registry: Registry
    live: LiveRuns
    capacity: Capacity
    fair_use: FairUse
    keys: StoredKeys
    budgets: BudgetsFile
    peers: Peers

    async def list_all(self, operator: Identity, request: limits_pb2.GetLimitsRequest) -> limits_pb2.GetLimitsResponse:
        """Return them as the services that answer hold them now; raises NotFound for a key of nobody's."""
        credential = request.key or ("" if request.user else operator.credential)
        whose = Identity(operator.tenant, request.user or operator.user, credential)
        if not whose.is_valid:
            raise InvalidRequest.of("user" if request.user else "key", "must be 1 to 128 visible ASCII characters")
        own = [*self._list_own(whose.tenant), *self._list_of_key(whose, is_wanted=bool(request.key))]
        response = limits_pb2.GetLimitsResponse(limits=finish_limits(NAME, own).limits)
        agent_keys = [request.agent_key] if request.agent_key else sorted(self.registry.by_key)
        wanted = self.budgets.current.select(whose, agent_keys) if self.budgets.is_good else []
        asked = {
            "llm_gateway": self.peers.llm.ListLimits,
            "memory": self.peers.memory.ListLimits,
            "tools": self.peers.tools.ListLimits,
        }
        with acting_as(whose):
            answers = await asyncio.gather(
                *map(_ask_peer, asked.values()), measure_budgets(self.peers, self.budgets, wanted)
            )
        for name, limits in zip([*asked, "budgets"], answers, strict=True):
            if limits is None:
                response.missing.append(name)
            else:
                response.limits.extend(limits)
        response.is_cut = len(wanted) > BUDGETS_MAX
        response.limits.sort(key=lambda limit: (limit.service, limit.name, limit.subject))
        return response

    def _list_own(self, tenant: str) -> list[limits_pb2.Limit]:
        limits = [
            make_configured(
                self.config,
                "runs_max",
                "ORCHESTRATOR",
                name="runs",
                kind="concurrency",
                unit="runs",
                per="all",
                used=self.capacity.count_taken(tenant),
                is_full=not self.capacity.has_room_for(tenant),
                is_per_replica=True,
            ),
            make_configured(
                self.config.server,
                "streams_max",
                "ORCHESTRATOR",
                name="streams",
                kind="concurrency",
                unit="calls",
                per="all",
                is_per_replica=True,
            ),
            make_fixed("chat_queries", WAITING_MAX, kind="queue", unit="queries", per="chat", is_per_replica=True),
            make_fixed("steers", UNHEARD_MAX, kind="queue", unit="messages", per="run", is_per_replica=True),
            make_fixed("message_bytes", EDGE_MESSAGE_BYTES_MAX, kind="size", unit="bytes", per="call"),
            make_fixed(
                "embedding_calls",
                embeddings.CALLS_MAX,
                kind="concurrency",
                unit="calls",
                per="all",
                is_per_replica=True,
            ),
        ]
        return limits if isinstance(self.fair_use, NoLimits) else [*limits, *self._list_fair_use(tenant)]

    def _list_fair_use(self, tenant: str) -> list[limits_pb2.Limit]:
        places, waiting = self.fair_use.count_places(tenant), self.fair_use.count_waiting(tenant)
        return [
            make_configured(
                self.config,
                "tenant_runs_max",
                "ORCHESTRATOR",
                name="tenant_runs",
                kind="concurrency",
                unit="chats",
                per="tenant",
                used=places,
                is_per_replica=True,
            ),
            make_configured(
                self.config,
                "tenant_waiting_max",
                "ORCHESTRATOR",
                name="tenant_queries",
                kind="queue",
                unit="queries",
                per="tenant",
                used=waiting,
                is_per_replica=True,
            ),
            make_fixed(
                "beginning_runs", BEGINNING_MAX, kind="concurrency", unit="runs", per="all", is_per_replica=True
            ),
        ]

    def _list_of_key(self, whose: Identity, *, is_wanted: bool) -> list[limits_pb2.Limit]:
        key = self.keys.find(whose.credential)
        if key is None or key.identity.tenant != whose.tenant:
            if is_wanted:
                raise NotFound(f"API key {whose.credential!r} does not exist", key=whose.credential)
            return []
        said: dict[str, Any] = {
            "source": "api_key",
            "source_name": whose.credential,
            "per": "key",
        }
        limits: list[limits_pb2.Limit] = []
        if key.runs_max:
            used = sum(run.identity.credential == whose.credential for run in self.live.all())
            limits.append(
                limits_pb2.Limit(
                    **said,
                    name="key_runs",
                    kind="concurrency",
                    unit="runs",
                    value=key.runs_max,
                    used=used,
                    is_per_replica=True,  # what is used; memory holds the limit over all of them
                )
            )
        if key.requests_per_minute:
            used, wait_s = self.keys.measure_calls(key)
            limits.append(
                limits_pb2.Limit(
                    **said,
                    name="key_requests",
                    kind="rate",
                    unit="requests",
                    value=key.requests_per_minute,
                    used=used,
                    period_ms=round(MINUTE_S * 1000),
                    is_full=wait_s > 0,
                    opens_at=find_opening_time(wait_s),
                )
            )
        return limits


async def _ask_peer(
    list_limits: Callable[..., Awaitable[limits_pb2.ListLimitsResponse]],
) -> Sequence[limits_pb2.Limit] | None:
    try:
        with translating_peer_errors():
            request = limits_pb2.ListLimitsRequest()
            return (await list_limits(request, timeout=PEER_TIMEOUT_S, metadata=forward_metadata())).limits
    except (HeadraceError, grpc.aio.AioRpcError):  # it is away, or of a version that does not know the RPC
        return None
