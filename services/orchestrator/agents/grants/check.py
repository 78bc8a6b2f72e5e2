"""Holds a tenant's agent against what the operator grants: everything that it names, field by field."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from yarl import URL

from services.orchestrator.agents.definition import Definition
from services.orchestrator.agents.definition.modes import MODES
from services.orchestrator.agents.definition.problems import Problem
from services.orchestrator.agents.definition.remote import SECRET_PLACES
from services.orchestrator.agents.definition.tool_lists import list_tool_names, number_names
from services.orchestrator.agents.grants.rules import DEPTH_MAX, TenantGrants

SECRETS_ARE_THE_OPERATORS = "must be left out: the orchestrator's environment and files are the operator's"

NOT_GRANTED = "is not granted to this tenant's agents (tenant-agents.yaml)"


def find_ungranted(
    agent: Definition, grants: TenantGrants, free_tools: Collection[str], operators: Collection[str]
) -> list[Problem]:
    """Return all problems; `free_tools` need no grant, `operators` are agents of files, both in small letters."""
    found = [*_check_models(agent, grants), *_check_names(agent, grants, free_tools, operators)]
    for variant in _list_modes(agent):
        found += _check_limits(variant, grants)
    return sorted(dict.fromkeys(found), key=lambda problem: problem.field)


def list_unrunnable(agent: Definition, grants: TenantGrants) -> list[str]:
    """Return the models and the mode without which the agent cannot go on, and which it may not have."""
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


def _list_modes(agent: Definition) -> list[Definition]:
    """Return the agent in each mode that a query may ask for."""
    if agent.react is None or agent.plan_execute is None:
        return [agent]
    return [agent.with_deep_think(0), agent.with_deep_think(1)]


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
