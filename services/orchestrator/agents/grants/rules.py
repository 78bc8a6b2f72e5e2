"""Parses tenant-agents.yaml, and says what it grants a tenant. What no grant names, no tenant's agent reaches."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from services.orchestrator.agents.definition.modes import MODES
from services.runtime.files.refused_files import load_yaml_model

ALL = "*"

DEPTH_MAX = 5
"""Depth of sub-agents where a definition says none."""

Name = Annotated[str, StringConstraints(pattern=r"^[^*]*\*?$", min_length=1, max_length=384)]
"""A name, without regard to case; a `*` at its end stands for anything behind."""

Names = Annotated[tuple[Name, ...], Field(max_length=1000)]


class GrantsError(Exception):
    """Lists the problems of the file, one a line, with field and rule."""


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class Ceilings(_Part):
    """What a definition's `budget` may say at most; where it says nothing, the default that then holds counts."""

    max_model_calls: Annotated[int, Field(gt=0)] = max(mode.model_calls for mode in MODES.values())
    """Model calls of a run. Left out, 30."""

    max_tool_calls: Annotated[int, Field(ge=0)] = max(mode.tool_calls for mode in MODES.values())
    """Tool calls of a run. Left out, 50."""

    timeout_ms: Annotated[int, Field(gt=0)] = max(mode.timeout_ms for mode in MODES.values())
    """Time of a run in milliseconds. Left out, 300,000."""

    max_depth: Annotated[int, Field(gt=0)] = DEPTH_MAX
    """Depth of sub-agents. Left out, 5."""

    max_tokens: Annotated[int, Field(gt=0)] | None = None
    """Tokens of a run; every definition must then say `maxTokens`. Left out, no ceiling."""

    max_cost_usd: Annotated[float, Field(gt=0)] | None = None
    """Cost of a run in US dollars; every definition must then say `maxCostUsd`. Left out, no ceiling."""


class Grant(_Part):
    """What agents of some tenants may reach. All grants for a tenant add up, and of ceilings the highest holds."""

    tenants: Annotated[tuple[Name, ...], Field(min_length=1, max_length=1000)]
    """The tenants; `*` for all, `default` where callers are not authenticated."""

    models: Names = ()
    """Models, each as the provider's key, a `/` and the model's name, for example `openai/gpt-*`. Without one, no
    definition is taken. A provider's fallbacks and summaryModel come with its models."""

    tools: Names = ()
    """Tools of the tools service, those of MCP servers (`server__tool`), frontend tools and actions included. The
    orchestrator's own (todos, ask_human, call_subagent, those for the chat's history and the user's facts) and a
    caller's own functions need no grant."""

    skills: Names = ()
    """Skills, by id or name."""

    subagents: Names = ()
    """Agents of the operator's files that may be called, each with all that it may reach itself."""

    modes: Names = ()
    """Modes of the operator's own, for agents of mode CUSTOM."""

    remotes: Names = ()
    """Hosts, each `host` or `host:port`, at which the agent cards of definitions of mode REMOTE may be and their agents
    may be served. No definition of a tenant may name secrets (`env:`, `file:`), which are the operator's."""

    limits: Ceilings = Ceilings()
    """What a run may use at most."""


class _File(_Part):
    grants: Annotated[tuple[Grant, ...], Field(max_length=1000)] = ()
    """The grants. Without the file or without one for a tenant, it can have no agents of its own."""


@dataclass(frozen=True)
class TenantGrants:
    """What one tenant's agents may reach."""

    grants: tuple[Grant, ...] = ()

    def allows_model(self, provider_key: str, model: str) -> bool:
        return _is_named(f"{provider_key}/{model}", (name for grant in self.grants for name in grant.models))

    def allows_tool(self, name: str) -> bool:
        return _is_named(name, (given for grant in self.grants for given in grant.tools))

    def allows_skill(self, *names: str) -> bool:
        """Return whether the skill is granted by its id or its name."""
        return any(_is_named(name, (given for grant in self.grants for given in grant.skills)) for name in names)

    def allows_subagent(self, key: str) -> bool:
        return _is_named(key, (given for grant in self.grants for given in grant.subagents))

    def allows_mode(self, name: str) -> bool:
        return _is_named(name, (given for grant in self.grants for given in grant.modes))

    def allows_remote(self, host: str) -> bool:
        """Return whether this host, or host and port, is granted."""
        return _is_named(host, (given for grant in self.grants for given in grant.remotes))

    def find_ceiling(self, name: str) -> float | None:
        """Return the highest ceiling of these grants by the name of its field; None: there is none."""
        given = [getattr(grant.limits, name) for grant in self.grants]
        return None if not given or None in given else max(given)


@dataclass(frozen=True)
class Grants:
    rules: tuple[Grant, ...] = ()

    def select(self, tenant: str) -> TenantGrants:
        return TenantGrants(tuple(rule for rule in self.rules if _is_named(tenant, rule.tenants)))


def parse_grants(data: bytes) -> Grants:
    """Raises GrantsError, with all problems."""
    try:
        return Grants(load_yaml_model(data, _File).grants)
    except ValueError as error:
        raise GrantsError(str(error)) from error


def write_grants(granted: TenantGrants) -> str:
    """Return a file that grants the same to every tenant."""
    rules = [rule.model_copy(update={"tenants": (ALL,)}) for rule in granted.grants]
    return json.dumps({"grants": [rule.model_dump(by_alias=True, exclude_none=True) for rule in rules]})


def _is_named(name: str, patterns: Iterable[str]) -> bool:
    folded = name.casefold()
    return any(
        folded.startswith(pattern[:-1].casefold()) if pattern.endswith(ALL) else folded == pattern.casefold()
        for pattern in patterns
    )
