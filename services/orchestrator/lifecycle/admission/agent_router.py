"""Selects a query's agent: the query's own definition, the named agent, the chat's last one, or for `auto` a model's
choice.

The model is asked before the query is accepted, because the log's query line names its agent.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import grpc
import structlog

from headrace.errors import HeadraceError, NotFound
from headrace.streams import reading
from headrace.v1 import agent_pb2, common_pb2, llm_pb2, memory_pb2
from services.orchestrator.agents import prompts
from services.orchestrator.agents.definition import Definition, ModelConfig
from services.orchestrator.agents.registry import Registry
from services.orchestrator.lifecycle.pins import apply_query, read_trial
from services.orchestrator.money.charges import allow_output
from services.orchestrator.peers import stored_runs
from services.orchestrator.peers.models import estimate_tokens, measure_needs
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.run import Run
from services.orchestrator.turn import model_stream
from services.runtime.auth.identity import require_identity

ROUTER_KEY = "auto"

HIDDEN = "hidden"

MESSAGE_CHARS_MAX = 4000
DESCRIPTION_CHARS_MAX = 400

STAGE = "router"

_WORD = re.compile(r"[\w.-]+", re.ASCII)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class AgentChoice:
    agent: Definition
    usage: common_pb2.Usage | None = None
    model: str = ""
    """The model that chose the agent, as provider/model."""

    problem: str = ""


async def route(message: str, default: Definition, agents: Sequence[Definition], peers: Peers) -> AgentChoice:
    """Select an agent for the message; without a usable answer, the default."""
    candidates = {agent.key.casefold(): agent for agent in agents if HIDDEN not in agent.tags}
    if len(candidates) < 2:
        return AgentChoice(next(iter(candidates.values()), default))
    usage, asked = common_pb2.Usage(), default.primary.model
    model = f"{asked.provider_key or ''}/{asked.model or ''}"
    words = _WORD.findall((await _ask_router(message, default, candidates.values(), peers, usage)).casefold())
    # Some models write a sentence around the key.
    if len(named := candidates.keys() & {*words, *(word.strip("._-") for word in words)}) == 1:
        return AgentChoice(candidates[named.pop()], usage, model)
    return AgentChoice(default, usage, model, f"no agent could be picked for this message; {default.key!r} takes it")


async def _ask_router(
    message: str, default: Definition, agents: Collection[Definition], peers: Peers, usage: common_pb2.Usage
) -> str:
    """Return the model's answer, empty if the call fails; add the cost to `usage`."""
    listed = "\n".join(f"- {agent.key}: {agent.description[:DESCRIPTION_CHARS_MAX] or agent.name}" for agent in agents)
    system = prompts.fill_placeholders(prompts.load_text("router"), {"agents": listed})
    request = model_stream.make_question(default.primary.model, STAGE, system, message[:MESSAGE_CHARS_MAX])
    limits_usd = [agent.limits.max_cost_usd for agent in agents if agent.limits.max_cost_usd is not None]
    answer: list[str] = []
    try:
        if limits_usd and not await _limit_cost(request, default.primary.model, peers, min(limits_usd)):
            return ""
        rpc = peers.llm.StreamChat(request, timeout=model_stream.TIMEOUT_S)
        async with asyncio.timeout(model_stream.TIMEOUT_S), reading(rpc) as deltas:
            async for delta in deltas:
                answer.append(delta.content)
                if delta.HasField("usage"):
                    usage.CopyFrom(delta.usage)
    except (HeadraceError, TimeoutError, grpc.aio.AioRpcError) as error:
        reason = error.reason if isinstance(error, HeadraceError) else type(error).__name__
        log.warning("router gave no answer", reason=reason)
        return ""
    return "".join(answer)


async def _limit_cost(request: llm_pb2.ChatRequest, model: ModelConfig, peers: Peers, limit_usd: float) -> bool:
    """Cap the answer at `limit_usd`, because the selected agent's run pays for it; return whether any output is
    affordable.

    Without a price, the model's cost is never known, so no cap applies.
    """
    needs = await measure_needs(peers, model, estimate_tokens(request.ByteSize()), is_priced=True)
    if needs.rates is None:
        return True
    output_tokens = allow_output(needs, limit_usd)
    request.max_tokens = output_tokens
    return output_tokens > 0


async def choose(request: agent_pb2.QueryRequest, live: Iterable[Run], registry: Registry, peers: Peers) -> AgentChoice:
    """Select the agent; `live` are the caller's live runs of the chat.

    Raises:
        NotFound, InvalidRequest, UnknownPlaceholder: No such agent exists, or it cannot do what the query asks.
    """
    if request.agent_key == ROUTER_KEY:
        # A repeated query is not routed again.
        same = [run for run in live if request.request_id and run.query.request_id == request.request_id]
        if same:
            routed = AgentChoice(same[0].agent)
        else:
            routed = await route(request.message, registry.default(), registry.all(), peers)
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
