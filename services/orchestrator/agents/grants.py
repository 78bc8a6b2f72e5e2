"""The operator's grants to tenants' own agents (tenant-agents.yaml); anything not granted is denied.

The file is read at start and on change; a bad file leaves the last good grants in force.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import structlog
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel
from yarl import URL

from headrace.regular_files import read_regular_file
from services.orchestrator.agents.definition import Definition
from services.orchestrator.agents.definition.modes import MODES
from services.orchestrator.agents.definition.problems import Problem, list_tool_names, number_names
from services.runtime.files.named_secrets import SECRET_PLACES
from services.runtime.files.refused_files import REFUSED_FILES, load_yaml_model, report_refusal

log = structlog.get_logger()


ALL = "*"

DEPTH_MAX = 5
"""Default depth of sub-agents."""

Name = Annotated[str, StringConstraints(pattern=r"^[^*]*\*?$", min_length=1, max_length=384)]
"""A name, case-insensitive; a trailing `*` matches any suffix."""

Names = Annotated[tuple[Name, ...], Field(max_length=1000)]


class GrantsError(Exception):
    """Lists the problems of the file, one per line, with field and rule."""


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class Ceilings(_Part):
    """Maximum values for a definition's `budget`. They also apply to the defaults of fields it leaves out."""

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
    """Access for the agents of some tenants. All grants for a tenant add up; the highest ceiling applies."""

    tenants: Annotated[tuple[Name, ...], Field(min_length=1, max_length=1000)]
    """The tenants; `*` for all, `default` where callers are not authenticated."""

    models: Names = ()
    """Models as `provider key/model name`, for example `openai/gpt-*`. Without any, no definition is accepted. A
    provider's fallbacks and summaryModel come with its models."""

    tools: Names = ()
    """Tools of the tools service, including MCP tools (`server__tool`), frontend tools and actions. The orchestrator's
    own tools (todos, ask_human, call_subagent, chat history, user facts) and functions that callers define need no
    grant."""

    skills: Names = ()
    """Skills, by id or name."""

    subagents: Names = ()
    """Callable agents of the operator's files, each with everything that it can reach itself."""

    modes: Names = ()
    """The operator's modes, for agents of mode CUSTOM."""

    remotes: Names = ()
    """Hosts, `host` or `host:port`, that may serve the agent cards and agents of REMOTE definitions. A tenant's
    definition may not refer to secrets (`env:`, `file:`), because they belong to the operator."""

    limits: Ceilings = Ceilings()
    """Maximum budget of a run."""


class _File(_Part):
    grants: Annotated[tuple[Grant, ...], Field(max_length=1000)] = ()
    """The grants. A tenant without a grant, or without this file, cannot have agents."""


@dataclass(frozen=True)
class TenantGrants:
    """Everything that one tenant's agents may use."""

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
        """Return the highest ceiling for a budget field, or None if there is no limit."""
        given = [getattr(grant.limits, name) for grant in self.grants]
        return None if not given or None in given else max(given)


@dataclass(frozen=True)
class Grants:
    rules: tuple[Grant, ...] = ()

    def select(self, tenant: str) -> TenantGrants:
        return TenantGrants(tuple(rule for rule in self.rules if _is_named(tenant, rule.tenants)))


def parse_grants(data: bytes) -> Grants:
    """Parse the file. Raises GrantsError that lists all problems."""
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


NAME = "tenant-agents.yaml"

FILE_BYTES_MAX = 256 * 1024


class GrantsFile:
    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.current = Grants()
        """Replaced, never mutated, by a reload. Nothing is granted until a valid file has been read."""

    def reload(self) -> None:
        """Read the file; log problems, and never raise."""
        try:
            if self._path is None or not self._path.exists():
                self.current = Grants()
            else:
                self.current = parse_grants(read_regular_file(self._path, FILE_BYTES_MAX))
        except (GrantsError, OSError) as error:
            REFUSED_FILES.labels("tenant_agents").set(1)
            report_refusal(
                "tenants' grants refused", file=str(self._path), problem=str(error), last_good_version_stays=True
            )
        else:
            REFUSED_FILES.labels("tenant_agents").set(0)
            log.info("tenants' grants in force", grants=len(self.current.rules))

    def find_for(self, agent: Definition) -> TenantGrants | None:
        """Return the grants now in force for the agent; None for an operator's agent, which needs none."""
        return self.current.select(agent.tenant) if agent.tenant else None


SECRETS_ARE_THE_OPERATORS = "must be left out: the orchestrator's environment and files are the operator's"

NOT_GRANTED = "is not granted to this tenant's agents (tenant-agents.yaml)"


def find_ungranted(
    agent: Definition, grants: TenantGrants, free_tools: Collection[str], operators: Collection[str]
) -> list[Problem]:
    """Return all problems. `free_tools` need no grant; `operators` are the agents of files. Both are in lower case."""
    found = [*_check_models(agent, grants), *_check_names(agent, grants, free_tools, operators)]
    has_both = agent.react is not None and agent.plan_execute is not None  # a query may then ask for either
    for mode in [agent.with_deep_think(0), agent.with_deep_think(1)] if has_both else [agent]:
        found += _check_limits(mode, grants)
    return sorted(dict.fromkeys(found), key=lambda problem: problem.field)


def list_unrunnable(agent: Definition, grants: TenantGrants) -> list[str]:
    """Return the rules of ungranted models or modes, without which the agent cannot continue."""
    return [problem.rule for problem in (*_check_models(agent, grants), *_check_mode(agent, grants))]


def _check_models(agent: Definition, grants: TenantGrants) -> Iterator[Problem]:
    for path, provider_key, model in _list_models(agent):
        if provider_key and model and not grants.allows_model(provider_key, model):
            yield Problem(path, f"model {provider_key}/{model} {NOT_GRANTED}")


def _list_models(agent: Definition) -> Iterator[tuple[str, str, str]]:
    """Yield the field, provider and name of each model that the agent may ask."""
    for path, settings in agent.settings_by_path:
        yield path, settings.model.provider_key or "", settings.model.model or ""
    for name in ("vision", "code"):
        other = agent.with_model(name)
        for _, settings in () if other is None else other.settings_by_path:
            yield f"models.{name}", settings.model.provider_key or "", settings.model.model or ""
    summary = agent.memory.summary
    if summary.model:
        own = {settings.model.provider_key or "" for _, settings in agent.settings_by_path}
        for provider_key in [summary.provider_key] if summary.provider_key else sorted(own):
            yield "memory.summary.model", provider_key, summary.model


def _check_names(
    agent: Definition, grants: TenantGrants, free_tools: Collection[str], operators: Collection[str]
) -> Iterator[Problem]:
    for field, name in list_tool_names(agent):
        if name.casefold() not in free_tools and not grants.allows_tool(name):
            yield Problem(field, f"tool {name!r} {NOT_GRANTED}")
    for field, name in number_names("skills", agent.skills):
        if not grants.allows_skill(name):
            yield Problem(field, f"skill {name!r} {NOT_GRANTED}")
    for field, key in number_names("subagents", agent.subagents):
        if key.casefold() in operators and not grants.allows_subagent(key):
            yield Problem(field, f"agent {key!r} {NOT_GRANTED}")
    yield from _check_mode(agent, grants)


def _check_mode(agent: Definition, grants: TenantGrants) -> Iterator[Problem]:
    if agent.custom is not None and not grants.allows_mode(agent.custom.mode):
        yield Problem("custom.mode", f"mode {agent.custom.mode!r} {NOT_GRANTED}")

    yield from _check_remote(agent, grants)


def _check_remote(agent: Definition, grants: TenantGrants) -> Iterator[Problem]:
    remote = agent.remote
    if remote is None:
        return
    card = URL(remote.card)
    if not (grants.allows_remote(card.host or "") or grants.allows_remote(f"{card.host}:{card.port}")):
        yield Problem("remote.card", f"host {card.host!r} {NOT_GRANTED}")
    for field, host in number_names("remote.hosts", remote.hosts):
        if not grants.allows_remote(host):
            yield Problem(field, f"host {host!r} {NOT_GRANTED}")
    if remote.token is not None:
        yield Problem("remote.token", SECRETS_ARE_THE_OPERATORS)
    for name, value in remote.headers.items():
        if value.startswith(SECRET_PLACES):
            yield Problem(f"remote.headers.{name}", SECRETS_ARE_THE_OPERATORS)


def _check_limits(agent: Definition, grants: TenantGrants) -> Iterator[Problem]:
    limits, defaults = agent.limits, MODES[agent.mode]
    tool_calls = defaults.tool_calls if limits.max_tool_calls is None else limits.max_tool_calls
    effective: dict[str, tuple[str, float | None]] = {
        "max_model_calls": ("maxModelCalls", limits.max_model_calls or defaults.model_calls),
        "max_tool_calls": ("maxToolCalls", tool_calls),
        "timeout_ms": ("timeoutMs", limits.timeout_ms or defaults.timeout_ms),
        "max_depth": ("maxDepth", limits.max_depth or DEPTH_MAX),
        "max_tokens": ("maxTokens", limits.max_tokens),
        "max_cost_usd": ("maxCostUsd", limits.max_cost_usd),
    }
    for name, (field, value) in effective.items():
        ceiling = grants.find_ceiling(name)
        if ceiling is not None and (value is None or value > ceiling):
            yield Problem(f"budget.{field}", f"must be {ceiling:g} at most (tenant-agents.yaml)")
