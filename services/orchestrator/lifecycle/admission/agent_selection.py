"""Selects a query's agent: the one that it brings along, the named one, the chat's last one, or the router's choice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from headrace.errors import NotFound
from headrace.v1 import agent_pb2, memory_pb2
from services.orchestrator.agents.definition import Definition
from services.orchestrator.agents.registry import Registry
from services.orchestrator.lifecycle.admission import agent_router
from services.orchestrator.lifecycle.admission.agent_router import AgentChoice
from services.orchestrator.lifecycle.versions.choice import apply_query, read_trial
from services.orchestrator.peers import stored_runs
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.run import Run
from services.runtime.auth.identity import require_identity


async def choose(
    request: agent_pb2.QueryRequest, beside: Iterable[Run], registry: Registry, peers: Peers
) -> AgentChoice:
    """Select the agent; `beside` are the live runs of the chat.

    Raises:
        NotFound, InvalidRequest, UnknownPlaceholder: There is no such agent, or none that does what is wanted.
    """
    if request.agent_key == agent_router.KEY:
        # A repeated query is not routed again.
        same = [run for run in beside if request.request_id and run.query.request_id == request.request_id]
        if same:
            routed = AgentChoice(same[0].agent)
        else:
            routed = await agent_router.route(request.message, registry.default(), registry.all(), peers)
    else:
        routed = AgentChoice(await _find_named(request, registry, peers))
    agent = apply_query(routed.agent, request, require_identity().credential)
    return routed if agent is routed.agent else replace(routed, agent=agent)


async def _find_named(request: agent_pb2.QueryRequest, registry: Registry, peers: Peers) -> Definition:
    if (tried := read_trial(request)) is not None:
        return tried
    if request.agent_key or not request.chat_id:
        return registry.choose(request.agent_key)
    try:
        chat = await stored_runs.get_chat(
            peers, memory_pb2.GetChatRequest(chat_id=request.chat_id, without_events=True)
        )
    except NotFound:
        return registry.default()
    return registry.get(chat.last_agent_key)
