"""Chooses the agent version for a run, pins the run to it, and finds it again after a takeover."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import grpc
import structlog

from headrace.errors import HeadraceError, InvalidRequest, LogDamaged, NotFound, QuotaExceeded
from headrace.v1 import agent_pb2, memory_pb2, tools_pb2
from services.orchestrator.agents.definition import Definition, DefinitionError, parse_agent
from services.orchestrator.agents.mode_files import ModeFiles
from services.orchestrator.agents.version import AgentVersion, make_version, read_version
from services.orchestrator.peers.stubs import Peers, TtlCache
from services.orchestrator.setup import skills, tool_selection
from services.runtime.auth.identity import require_identity, require_scope
from services.runtime.newest import NewestDict

LISTING_S = 2.0
"""Maximum time for the tools service to list its contents before a query is accepted."""

STORED_MAX = 10_000
"""Maximum number of versions known to be stored."""

BUILT_MAX = 1000
"""Maximum number of agents with a cached current version."""

READ_MAX = 200
"""Maximum number of versions cached after reading: those that queries ask for, and the stable versions of canaries."""

T = TypeVar("T")

log = structlog.get_logger()


class Pins:
    def __init__(self, peers: Peers, modes: ModeFiles) -> None:
        self._peers = peers
        self._modes = modes
        self._numbers: NewestDict[tuple[str, str], int] = NewestDict(STORED_MAX)
        """Version number by (tenant, definition hash); the hash covers the agent's key."""
        self._built: NewestDict[tuple[str, str], tuple[object, object, object, object, object, AgentVersion]] = (
            NewestDict(BUILT_MAX)
        )
        """By (tenant, key): the latest version built, preceded by the objects it was built from."""

        self._read_versions: NewestDict[tuple[str, str, int], AgentVersion] = NewestDict(READ_MAX)

    async def pin(self, agent: Definition, existing: Mapping[str, Definition]) -> AgentVersion | None:
        """Store the version of `agent` that is in force with these other agents, and return it.

        Returns None if memory keeps no versions, or stores no more of this agent's; such a run is not pinned.

        Raises:
            ProviderUnavailable, Overloaded: Memory cannot store it.
        """
        try:
            version = await self.publish(agent, existing)
            return version if version.number else None
        except QuotaExceeded as error:
            log.error("agent version not stored", agent_key=agent.key, problem=error.message)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise
        return None  # the second: memory is of an earlier version, in the middle of an upgrade

    async def publish(self, agent: Definition, existing: Mapping[str, Definition]) -> AgentVersion:
        """Like `pin`, but raise QuotaExceeded if memory keeps no more versions."""
        uses_tools = agent.may_use_tools or bool(agent.subagents)
        tools, offered = (await self._list_tools()) if uses_tools else (None, None)
        version = self._build(agent, existing, tools, offered)
        number = self._numbers.get((agent.tenant, version.hash)) or await self._store(version)
        if version.number != number:
            version = version.with_number(number)
            name = (agent.tenant, agent.key)
            self._built[name] = (*self._built[name][:-1], version)
        return version

    async def find(self, agent_key: str, digest: str) -> AgentVersion | None:
        """Return a stored version, of the operator's agent or the tenant's; None if memory does not have it, or this
        release cannot read it."""
        problem: Exception | None = None
        for is_shared in (True, False):
            request = memory_pb2.ReadAgentVersionRequest(agent_key=agent_key, hash=digest, is_shared=is_shared)
            try:
                return await self._read(request)
            except (NotFound, LogDamaged, DefinitionError) as error:
                problem = problem if isinstance(error, NotFound) and problem else error
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                    raise
                return None
        log.error("agent version not read", agent_key=agent_key, hash=digest, problem=str(problem))
        return None

    async def get(self, agent_key: str, number: int, tenant: str = "") -> AgentVersion:
        """Return a stored version by its number, of an agent of `tenant`, which is the current tenant, or empty for the
        operator's. The latest ones requested are cached.

        Raises:
            NotFound, LogDamaged: The agent has no such version, or it cannot be read.
        """
        known = self._read_versions.get((tenant, agent_key, number))
        if known is None:
            request = memory_pb2.ReadAgentVersionRequest(agent_key=agent_key, version=number, is_shared=not tenant)
            try:
                known = await self._read(request)
            except DefinitionError as error:
                raise LogDamaged(f"version {number} of agent {agent_key!r} cannot be read by this release") from error
        self._read_versions[tenant, agent_key, number] = known
        return known

    async def _read(self, request: memory_pb2.ReadAgentVersionRequest) -> AgentVersion:
        stored = await read_stored(self._peers, request)
        tenant = "" if request.is_shared else require_identity().tenant
        version = read_version(stored.definition.encode(), tenant).with_number(stored.version)
        self._note(version, stored.version)
        return version

    async def _list_tools(self) -> tuple[Sequence[tools_pb2.Tool] | None, tools_pb2.ListSkillsResponse | None]:
        peers = self._peers
        list_tools = partial(tool_selection.fetch_tools, peers, LISTING_S)
        list_skills = partial(skills.fetch_skills, peers, LISTING_S)
        if peers.tool_list.is_known(None) and peers.skill_list.is_known(None):  # which takes no tasks
            return await list_known(peers.tool_list, list_tools), await list_known(peers.skill_list, list_skills)
        return await asyncio.gather(list_known(peers.tool_list, list_tools), list_known(peers.skill_list, list_skills))

    def _build(
        self,
        agent: Definition,
        existing: Mapping[str, Definition],
        tools: Sequence[tools_pb2.Tool] | None,
        offered: tools_pb2.ListSkillsResponse | None,
    ) -> AgentVersion:
        digests = self._modes.digests
        parts = (
            agent.source,
            existing,
            tools,
            offered,
            digests,
        )  # a query's deepThink makes another agent of the same file
        name = (agent.tenant, agent.key)
        known = self._built.get(name)
        if known is not None and all(one is other for one, other in zip(known, parts, strict=False)):
            return known[-1]
        version = make_version(agent, existing, tools, None if offered is None else offered.skills, digests)
        self._built[name] = (*parts, version)
        return version

    async def _store(self, version: AgentVersion) -> int:
        request = memory_pb2.PutAgentVersionRequest(
            agent_key=version.agent.key, is_shared=not version.agent.tenant, definition=version.document.decode()
        )
        stored = await self._peers.memory.PutAgentVersion(request)
        self._note(version, stored.version)
        log.info("agent version stored", agent_key=version.agent.key, version=stored.version, hash=version.hash)
        return stored.version

    def _note(self, version: AgentVersion, number: int) -> None:
        self._numbers[version.agent.tenant, version.hash] = number


async def read_stored(peers: Peers, request: memory_pb2.ReadAgentVersionRequest) -> memory_pb2.ReadAgentVersionResponse:
    """Read one version. Raises NotFound, LogDamaged."""
    return await peers.memory.ReadAgentVersion(request)


async def list_known(cache: TtlCache[None, T], ask: Callable[[], Awaitable[T]]) -> T | None:
    """Return the newest available answer, cached if the request fails; None if there never was one."""
    try:
        return await cache.get_or_ask(None, ask)
    except (HeadraceError, grpc.aio.AioRpcError):
        return cache.find_last(None)


KEYWORDS = frozenset({"", "default", "auto"})
"""Values of agentKey that select an agent, so the caller cannot know its versions."""


@dataclass(frozen=True, slots=True)
class ChosenVersion:
    agent: Definition
    agents: Mapping[str, Definition]
    """All agents that the run may call."""

    version: AgentVersion | None
    """The version the run is pinned to; None if memory keeps no versions, or if the query supplies the agent."""


def check_version(query: agent_pb2.QueryRequest) -> None:
    """Raise InvalidRequest or PermissionDenied for a version or trial that the caller may not request."""
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
    """Return the agent that a query supplies, as an agent of the current tenant; None if it supplies none.

    Raises:
        InvalidRequest: The definition is invalid, or its key differs from the query's.
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
    """Return the agent as the query requests it; with another model or prompt, it becomes one of the current tenant.

    The operator's permissions cover only what the operator has written. `credential` is the caller's; it is empty
    without authentication, where everything belongs to the operator.

    Raises the errors of `Definition.with_query`.
    """
    applied = agent.with_query(query)
    if not query.HasField("trial") or agent.tenant or not credential:
        return applied
    return applied.model_copy().take_tenant(require_identity().tenant)


async def choose_version(
    pins: Pins, query: agent_pb2.QueryRequest, agent: Definition, existing: Mapping[str, Definition]
) -> ChosenVersion:
    """Choose the version for a query with its chat_id filled in. `agent` is the one in force; `existing` are the agents
    it may reach.

    Raises:
        NotFound, LogDamaged: The requested version does not exist or cannot be read.
    """
    if query.trial.HasField("definition"):
        return ChosenVersion(agent, existing, None)
    if query.HasField("agent_version"):
        return _take(await pins.get(agent.key, query.agent_version, agent.tenant), query, existing)
    canary = agent.canary
    if canary is not None and not is_in_share(agent.key, query.chat_id, canary.share):
        try:
            return _take(await pins.get(agent.key, canary.stable_version, agent.tenant), query, existing)
        except (NotFound, LogDamaged) as error:
            log.error("canary has no stable version", agent_key=agent.key, problem=error.message)
    return ChosenVersion(agent, existing, await pins.pin(agent, existing))


def is_in_share(agent_key: str, chat_id: str, share: float) -> bool:
    """Return whether the chat belongs to this share; chats stay in it when the share grows."""
    digest = hashlib.sha256(f"{agent_key}\n{chat_id}".encode()).digest()
    return int.from_bytes(digest[:8]) < share * 2**64


def _take(version: AgentVersion, query: agent_pb2.QueryRequest, existing: Mapping[str, Definition]) -> ChosenVersion:
    agent = apply_query(version.agent, query, require_identity().credential)
    return ChosenVersion(agent, version.overlay_agents(existing), version)
