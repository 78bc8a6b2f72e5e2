"""ListLimits: memory's limits for a tenant and a user, and their usage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.v1 import limits_pb2
from headrace.v1.memory_pb2_grpc import MemoryServiceServicer
from services.memory.agents import TENANT_AGENTS_MAX
from services.memory.facts.changes import FACTS_MAX
from services.memory.keys.store import TENANT_KEYS_MAX
from services.memory.schedules.posts import PAYLOAD_BYTES_MAX, POSTS_MAX
from services.memory.schedules.store import SCHEDULES_MAX
from services.memory.storage.gates.query import GateQuery
from services.memory.storage.records.agent_versions import VERSIONS_MAX
from services.memory.storage.records.deliveries import DEAD_MAX, WAITING_MAX
from services.memory.webhooks.store import WEBHOOKS_MAX
from services.runtime.auth import identity
from services.runtime.process.limits import finish_limits, make_fixed

if TYPE_CHECKING:
    from services.memory.storage.engine import Engine
    from services.runtime.rpc.interceptors import Context


class LimitRpcs(MemoryServiceServicer):
    """RPCs of the memory service that report usage of its limits."""

    _engine: Engine

    async def ListLimits(
        self, request: limits_pb2.ListLimitsRequest, context: Context
    ) -> limits_pb2.ListLimitsResponse:
        caller, engine = identity.require_identity(), self._engine
        records = engine.records
        webhooks = await records.webhooks.list_own(caller.tenant)
        keys, agents = await records.keys.list_own(caller.tenant), await records.agents.measure(caller.tenant)
        schedules = await records.schedules.count_own(caller)
        seen = await records.facts.list_visible(caller)
        facts = sum(fact.place == caller and fact.scope != "plan" and fact.is_valid for fact in seen)
        gates, more = await engine.gates.list_gates(GateQuery(caller.tenant))
        kept = [
            make_fixed("webhooks", WEBHOOKS_MAX, unit="webhooks", per="tenant", used=len(webhooks), kind="count"),
            make_fixed("api_keys", TENANT_KEYS_MAX, unit="keys", per="tenant", used=len(keys), kind="count"),
            make_fixed("schedules", SCHEDULES_MAX, unit="schedules", per="user", used=schedules, kind="count"),
            make_fixed("facts", FACTS_MAX, unit="facts", per="user", used=facts, kind="count"),
            make_fixed("agents", TENANT_AGENTS_MAX, unit="agents", per="tenant", used=agents.own, kind="count"),
            make_fixed("agent_versions", VERSIONS_MAX, unit="versions", per="agent", kind="count"),
            make_fixed("webhook_deliveries", WAITING_MAX, unit="deliveries", per="webhook", kind="queue"),
            make_fixed("webhook_dead_letters", DEAD_MAX, unit="deliveries", per="webhook", kind="count"),
            make_fixed("schedule_posts", POSTS_MAX, unit="posts", per="schedule", kind="queue"),
            make_fixed("schedule_post_bytes", PAYLOAD_BYTES_MAX, unit="bytes", per="call", kind="size"),
        ]
        if not more:  # with more than one page, the number is not reported
            # Bounded by the runs that may live: each waits for people in as many calls as one answer has.
            kept.append(
                limits_pb2.Limit(
                    name="gates", unit="gates", per="tenant", used=len(gates), kind="queue", source="fixed"
                )
            )
        return finish_limits("memory", kept)
