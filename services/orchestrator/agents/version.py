"""A version of an agent: everything its runs depend on, as one document with a hash.

The document (docs/reference/agent-versions.md) holds the agent's file, those of all agents below it, the definitions of
the tools and skills they may see, and the hashes of their modes' code. White space does not matter: equal documents are
the same version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar, cast

import orjson
from google.protobuf import json_format
from google.protobuf.message import Message

from headrace.v1 import tools_pb2
from services.orchestrator.agents.definition import Definition, DefinitionError, read_definition

TIERS = {"@core": "core", "@enabled": "enabled"}
"""Names in an agent's lists that select all tools of a tier."""

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class AgentVersion:
    """The version a run is pinned to."""

    agent: Definition
    agents: Mapping[str, Definition]
    """The agent and all agents below it, by key."""

    tools: Sequence[tools_pb2.Tool] | None
    """Definitions of the tools that these agents may see, without availability and without tools listed per user. None
    if they were unknown: runs then see the tools of the moment."""

    skills: Sequence[tools_pb2.Skill] | None
    """As `tools`."""

    modes: Mapping[str, str]
    """SHA-256 of the operator's mode files that its agents use, by mode name."""

    document: bytes
    hash: str
    """SHA-256 of the document, in hexadecimal."""

    number: int = 0
    """Number among the agent's versions, from 1; 0 until memory has assigned one."""

    def with_number(self, number: int) -> AgentVersion:
        return replace(self, number=number)

    def overlay_agents(self, existing: Mapping[str, Definition]) -> dict[str, Definition]:
        """Return `existing` with this version's agents in place of its own; agents named but absent in this version are
        left out."""
        named = {key.casefold() for agent in self.agents.values() for key in agent.subagents}
        return {key: agent for key, agent in existing.items() if key.casefold() not in named} | dict(self.agents)


def make_version(
    agent: Definition,
    existing: Mapping[str, Definition],
    tools: Iterable[tools_pb2.Tool] | None,
    skills: Iterable[tools_pb2.Skill] | None,
    modes: Mapping[str, str] | None = None,
) -> AgentVersion:
    """Create the version of `agent` from the agents, tools and skills in force; its number is not set."""
    agents = _list_agents(agent, existing)
    seen = None if tools is None else [_strip(tool) for tool in tools if _is_seen(tool, agents.values())]
    named = {name.casefold() for name in agent.skills}
    chosen = [skill for skill in skills or () if agent.may_use_tools and (not named or is_named(skill, named))]
    offered = None if skills is None else [_strip(skill) for skill in chosen]
    digests = modes or {}
    used_modes = sorted({agent.custom.mode for agent in agents.values() if agent.custom is not None})
    used = {name: digests[name] for name in used_modes if name in digests}
    owned = sorted(key for key, below in agents.items() if below.tenant)
    document = orjson.dumps(
        {
            "agentKey": agent.key,
            "agents": {key: orjson.Fragment(below.source) for key, below in sorted(agents.items())},
            "tools": seen and sorted(map(_to_json, seen), key=lambda tool: tool["name"]),
            "skills": offered and sorted(map(_to_json, offered), key=lambda skill: skill["id"]),
            # Left out if empty, so that documents without modes keep the hashes they had before modes existed.
            **({"modes": used} if used else {}),
            # Distinguishes a tenant's agent, which reaches only granted things, from an operator's agent with the same
            # text.
            **({"tenantAgents": owned} if owned else {}),
        }
    )
    return AgentVersion(agent, agents, seen, offered, used, document, hashlib.sha256(document).hexdigest())


def read_version(document: bytes, tenant: str = "") -> AgentVersion:
    """Read a version from its `document`; a tenant's agents in it belong to `tenant`.

    Raises:
        DefinitionError: A later release wrote the document, and this one cannot read it.
    """
    given: dict[str, Any] = orjson.loads(document)
    digest = hashlib.sha256(document).hexdigest()
    agents = {key: read_definition(source, digest[:16]) for key, source in given["agents"].items()}
    for key in given.get("tenantAgents", ()):
        agents[key].take_tenant(tenant)
    try:
        tools = _read_all(given["tools"], tools_pb2.Tool)
        skills = _read_all(given["skills"], tools_pb2.Skill)
    except json_format.ParseError as error:
        raise DefinitionError(f"a tool or skill cannot be read: {error}") from error
    return AgentVersion(agents[given["agentKey"]], agents, tools, skills, given.get("modes", {}), document, digest)


def is_named(skill: tools_pb2.Skill, names: Iterable[str]) -> bool:
    """Return whether one of `names`, in lower case, refers to the skill."""
    return any(name in (skill.id.casefold(), skill.name.casefold()) for name in names)


def _list_agents(agent: Definition, existing: Mapping[str, Definition]) -> dict[str, Definition]:
    by_name = {key.casefold(): below for key, below in existing.items()}
    found = {agent.key: agent}
    left = [*agent.subagents]
    while left:
        below = by_name.get(left.pop().casefold())
        if below is not None and below.key not in found:
            found[below.key] = below
            left += below.subagents
    return found


def _is_seen(tool: tools_pb2.Tool, agents: Iterable[Definition]) -> bool:
    if tool.HasField("per_user_server"):  # a version is everybody's
        return False
    names = {tool.name.casefold(), *(name for name, tier in TIERS.items() if tier == tool.tier)}
    return any(agent.may_use_tools and (tool.always_available or names & agent.listed_tools) for agent in agents)


def _strip(given: M) -> M:
    """Return a copy without `unavailable`, which is not part of a definition."""
    copied = type(given)()
    copied.CopyFrom(given)
    copied.ClearField("unavailable")
    return copied


def _to_json(given: Message) -> dict[str, Any]:
    return json_format.MessageToDict(given)


def _read_all(given: list[Any] | None, kind: type[M]) -> list[M] | None:
    if given is None:
        return None
    return [json_format.ParseDict(entry, kind(), ignore_unknown_fields=True) for entry in given]


Json: TypeAlias = Any

NAMES = ("name", "id")
"""Fields that identify objects in a list: tools by name, skills by id."""

MISSING = object()


@dataclass(frozen=True, slots=True)
class Change:
    path: str
    before: str | None
    """JSON; None: nothing."""
    after: str | None


def diff_documents(before: str, after: str) -> list[Change]:
    """Return the fields that differ between two documents, in the order of their paths."""
    return sorted(_diff(orjson.loads(before), orjson.loads(after), ""), key=lambda change: change.path)


def _diff(before: Json, after: Json, path: str) -> Iterator[Change]:
    if before == after:
        return
    ones, others = _name_fields(before), _name_fields(after)
    if ones is None or others is None:
        yield Change(path, _write(before), _write(after))
        return
    for name in dict.fromkeys((*ones, *others)):
        inner = f"{path}.{name}" if path else name
        yield from _diff(ones.get(name, MISSING), others.get(name, MISSING), inner)


def _name_fields(value: Json) -> dict[str, Json] | None:
    """Return the fields of an object, or the objects of a list by their names; None for any other value."""
    if isinstance(value, dict):
        return cast("dict[str, Json]", value)
    if not isinstance(value, list):
        return None
    entries = cast("list[Json]", value)
    for name in NAMES:
        if entries and all(isinstance(entry, dict) and isinstance(entry.get(name), str) for entry in entries):
            return {entry[name]: entry for entry in entries}
    return None


def _write(value: Json) -> str | None:
    return None if value is MISSING else orjson.dumps(value).decode()
