"""Chooses the version of its agent that a run gets: the one in force, one that is asked for, or that of a canary."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from headrace.errors import InvalidRequest, LogDamaged, NotFound
from headrace.v1 import agent_pb2
from services.orchestrator.agents.definition import Definition, DefinitionError, parse_agent
from services.orchestrator.agents.version import AgentVersion
from services.orchestrator.lifecycle.versions.pins import Pins
from services.runtime.auth.identity import require_identity, require_scope

KEYWORDS = frozenset({"", "default", "auto"})
"""Words for an agent, of which nobody can say a version."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ChosenVersion:
    agent: Definition
    agents: Mapping[str, Definition]
    """All agents that the run may call."""

    version: AgentVersion | None
    """What the run is pinned to; None where memory keeps no versions, and for an agent that the query brings along."""


def check_version(query: agent_pb2.QueryRequest) -> None:
    """Raise InvalidRequest or PermissionDenied for a version or trial that the caller may not ask for."""
    if query.HasField("trial"):
        require_scope("publish")
    if query.trial.HasField("definition"):
        if query.agent_key in KEYWORDS:
            raise InvalidRequest.of("agentKey", "must name the agent of trial.definition")
        if query.HasField("agent_version"):
            raise InvalidRequest.of("trial.definition", "must not stand beside agentVersion")
    if not query.HasField("agent_version"):
        return
    require_scope("operate")
    if query.agent_key in KEYWORDS:
        raise InvalidRequest.of("agentVersion", "needs an agentKey that names an agent")
    if query.agent_version < 1:
        raise InvalidRequest.of("agentVersion", "must be the number of a version, from 1")


def read_trial(query: agent_pb2.QueryRequest) -> Definition | None:
    """Return the agent that a query brings along, as one of the current tenant's own; None where it brings none.

    Raises:
        InvalidRequest: The definition is invalid, or of another agent than the query names.
    """
    if not query.trial.HasField("definition"):
        return None
    try:
        agent = parse_agent(query.trial.definition.encode(), query.agent_key)
    except DefinitionError as error:
        raise InvalidRequest.of("trial.definition", str(error)) from error
    if agent.key != query.agent_key:
        raise InvalidRequest.of("agentKey", f"must be the key of trial.definition, {agent.key!r}")
    return agent.take_tenant(require_identity().tenant)


def apply_query(agent: Definition, query: agent_pb2.QueryRequest, credential: str) -> Definition:
    """Return the agent as a query wants it: another model or prompt makes it one of the current tenant.

    What the operator lets an agent reach is for what the operator has written. `credential` is what the query was asked
    with; an empty one is that of an installation without authentication, where all is the operator's.

    Raises as `Definition.with_query`.
    """
    applied = agent.with_query(query)
    if not query.HasField("trial") or agent.tenant or not credential:
        return applied
    return applied.model_copy().take_tenant(require_identity().tenant)


async def choose_version(
    pins: Pins, query: agent_pb2.QueryRequest, agent: Definition, there_are: Mapping[str, Definition]
) -> ChosenVersion:
    """Choose by a query whose chat_id is filled in; `agent` is the one in force, `there_are` are those it may come to.

    Raises:
        NotFound, LogDamaged: The version that the query asks for is not there.
    """
    if query.trial.HasField("definition"):
        return ChosenVersion(agent, there_are, None)
    if query.HasField("agent_version"):
        return _take(await pins.get(agent.key, query.agent_version, agent.tenant), query, there_are)
    canary = agent.canary
    if canary is not None and not is_in_share(agent.key, query.chat_id, canary.share):
        try:
            return _take(await pins.get(agent.key, canary.stable_version, agent.tenant), query, there_are)
        except (NotFound, LogDamaged) as error:
            log.error("canary has no stable version", agent_key=agent.key, problem=error.message)
    return ChosenVersion(agent, there_are, await pins.pin(agent, there_are))


def is_in_share(agent_key: str, chat_id: str, share: float) -> bool:
    """Return whether a chat is one of this share; one that is stays so when the share grows."""
    digest = hashlib.sha256(f"{agent_key}\n{chat_id}".encode()).digest()
    return int.from_bytes(digest[:8]) < share * 2**64


def _take(version: AgentVersion, query: agent_pb2.QueryRequest, there_are: Mapping[str, Definition]) -> ChosenVersion:
    agent = apply_query(version.agent, query, require_identity().credential)
    return ChosenVersion(agent, version.overlay_agents(there_are), version)
