"""Every limit that applies to a user of a tenant: the orchestrator's own, budgets, and those that peers report."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import grpc

from headrace.errors import HeadraceError, InvalidRequest, NotFound
from headrace.v1 import limits_pb2, memory_pb2
from services.orchestrator.agents.registry import Registry
from services.orchestrator.config import Config
from services.orchestrator.lifecycle.admission.admission import WAITING_MAX
from services.orchestrator.lifecycle.admission.fair_use import BEGINNING_MAX, FairUse, NoLimits
from services.orchestrator.lifecycle.live_runs import LiveRuns
from services.orchestrator.money.budgets import BudgetsFile
from services.orchestrator.peers import embeddings
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.control.state import UNHEARD_MAX
from services.runtime.auth.identity import Identity, acting_as
from services.runtime.auth.key_calls import MINUTE_S
from services.runtime.auth.stored_keys import StoredKeys
from services.runtime.capacity import Capacity
from services.runtime.process.limits import find_opening_time, finish_limits, make_configured, make_fixed
from services.runtime.rpc.channels import EDGE_MESSAGE_BYTES_MAX

PEER_TIMEOUT_S = 5.0
"""Timeout per peer; short, because the other limits are worth showing if one service is unavailable."""

Answer = TypeVar("Answer")

BUDGETS_MAX = 1000
"""Maximum number of budgets measured; a rule for each agent is one budget per agent."""


async def measure_budgets(
    peers: Peers, file: BudgetsFile, budgets: Sequence[memory_pb2.SpendBudget]
) -> list[limits_pb2.Limit] | None:
    """Return the first budgets as limits; None if budgets.yaml was never valid, or memory does not answer."""
    if not file.is_good:
        return None
    if not budgets:
        return []
    request = memory_pb2.MeasureBudgetsRequest(budgets=budgets[:BUDGETS_MAX])
    if (response := await _ask_peer(peers.memory.MeasureBudgets(request, timeout=PEER_TIMEOUT_S))) is None:
        return None
    measured = zip(request.budgets, response.uses, strict=True)
    return [limit for budget, use in measured for limit in _show_budget(budget, use)]


def _show_budget(budget: memory_pb2.SpendBudget, use: memory_pb2.BudgetUse) -> list[limits_pb2.Limit]:
    per = "key" if budget.key else "agent" if budget.agent_key else "user" if budget.user else "tenant"
    units: tuple[tuple[str, str, Literal["nano_usd_max", "tokens_max"], int, int], ...] = (
        ("budget_money", "nano_usd", "nano_usd_max", use.spent.nano_usd, use.reserved.nano_usd),
        ("budget_tokens", "tokens", "tokens_max", use.spent.tokens, use.reserved.tokens),
    )
    return [
        limits_pb2.Limit(
            name=name,
            subject=budget.budget_id,
            kind="spend",
            unit=unit,
            per=per,
            source="budgets.yaml",
            source_name=budget.budget_id.partition("/")[0],
            value=getattr(budget, field),
            used=spent + reserved,
            reserved=reserved,
            is_full=spent + reserved >= getattr(budget, field),
            opens_at=use.ends_at,
            service="memory",
        )
        for name, unit, field, spent, reserved in units
        if budget.HasField(field)
    ]


NAME, OWNER = "orchestrator", "ORCHESTRATOR"
"""The service's name, and its prefix in settings."""


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
        """Return the current limits of all services that answer; raises NotFound for an unknown key."""
        credential = request.key or ("" if request.user else operator.credential)
        user = Identity(operator.tenant, request.user or operator.user, credential)
        if not user.is_valid:
            raise InvalidRequest.of("user" if request.user else "key", "must be 1 to 128 visible ASCII characters")
        own = [*self._list_own(user.tenant), *self._list_of_key(user, is_wanted=bool(request.key))]
        response = limits_pb2.GetLimitsResponse(limits=finish_limits(NAME, own).limits)
        agent_keys = [request.agent_key] if request.agent_key else sorted(self.registry.by_key)
        wanted = self.budgets.current.select(user, agent_keys) if self.budgets.is_good else []
        stubs = {"llm_gateway": self.peers.llm, "memory": self.peers.memory, "tools": self.peers.tools}
        asked = limits_pb2.ListLimitsRequest()
        with acting_as(user):
            answers, budgets = await asyncio.gather(
                asyncio.gather(*(_ask_peer(peer.ListLimits(asked, timeout=PEER_TIMEOUT_S)) for peer in stubs.values())),
                measure_budgets(self.peers, self.budgets, wanted),
            )
        for name, answer in zip(stubs, answers, strict=True):
            if answer is None:
                response.missing.append(name)
            else:
                response.limits.extend(answer.limits)
        if budgets is None:
            response.missing.append("budgets")
        response.limits.extend(budgets or ())
        response.is_cut = len(wanted) > BUDGETS_MAX
        response.limits.sort(key=lambda limit: (limit.service, limit.name, limit.subject))
        return response

    def _list_own(self, tenant: str) -> list[limits_pb2.Limit]:
        runs: dict[str, Any] = {"kind": "concurrency", "unit": "runs", "per": "all", "is_per_replica": True}
        queries: dict[str, Any] = {"kind": "queue", "unit": "queries", "is_per_replica": True}
        calls, chats = {**runs, "unit": "calls"}, {**runs, "unit": "chats", "per": "tenant"}
        taken, is_full = self.capacity.count_taken(tenant), not self.capacity.has_room_for(tenant)
        limits = [
            make_configured(self.config, "runs_max", OWNER, name="runs", **runs, used=taken, is_full=is_full),
            make_configured(self.config.server, "streams_max", OWNER, name="streams", **calls),
            make_fixed("chat_queries", WAITING_MAX, **queries, per="chat"),
            make_fixed("steers", UNHEARD_MAX, kind="queue", unit="messages", per="run", is_per_replica=True),
            make_fixed("message_bytes", EDGE_MESSAGE_BYTES_MAX, kind="size", unit="bytes", per="call"),
            make_fixed("embedding_calls", embeddings.CALLS_MAX, **calls),
        ]
        if isinstance(self.fair_use, NoLimits):
            return limits
        chats["used"], waiting = self.fair_use.count_places(tenant), self.fair_use.count_waiting(tenant)
        of_tenant = {**queries, "per": "tenant", "used": waiting}
        return [
            *limits,
            make_configured(self.config, "tenant_runs_max", OWNER, name="tenant_runs", **chats),
            make_configured(self.config, "tenant_waiting_max", OWNER, name="tenant_queries", **of_tenant),
            make_fixed("beginning_runs", BEGINNING_MAX, **runs),
        ]

    def _list_of_key(self, user: Identity, *, is_wanted: bool) -> list[limits_pb2.Limit]:
        key = self.keys.find(user.credential)
        if key is None or key.identity.tenant != user.tenant:
            if is_wanted:
                raise NotFound(f"API key {user.credential!r} does not exist", key=user.credential)
            return []
        shared: dict[str, Any] = {"source": "api_key", "source_name": user.credential, "per": "key"}
        limits: list[limits_pb2.Limit] = []
        if key.runs_max:
            used = sum(run.identity.credential == user.credential for run in self.live.all())
            limits.append(
                limits_pb2.Limit(
                    **shared,
                    name="key_runs",
                    kind="concurrency",
                    unit="runs",
                    value=key.runs_max,
                    used=used,
                    is_per_replica=True,  # applies to usage; memory enforces the limit across all replicas
                )
            )
        if key.requests_per_minute:
            used, wait_s = self.keys.measure_calls(key)
            limits.append(
                limits_pb2.Limit(
                    **shared,
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


async def _ask_peer(call: Awaitable[Answer]) -> Answer | None:
    """Return the answer; None if the peer is unavailable or does not support the RPC."""
    try:
        return await call
    except (HeadraceError, grpc.aio.AioRpcError):
        return None
