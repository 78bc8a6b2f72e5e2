"""What a scope's agent may reach now, where it is a tenant's own; the operator's agents reach what they name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import PermissionDenied
from services.orchestrator.agents.grants import list_unrunnable

if TYPE_CHECKING:
    from services.orchestrator.agents.definition import Definition
    from services.orchestrator.agents.grants import TenantGrants
    from services.orchestrator.run.scope import Scope


def find_grants(scope: Scope) -> TenantGrants | None:
    """Return what the scope's agent is granted; None: it needs no grants."""
    return scope.run.services.grants.find_for(scope.agent)


def check_turn(scope: Scope) -> None:
    """Raise PermissionDenied if the agent's models or mode are not granted any more."""
    grants = find_grants(scope)
    if grants is not None and (found := list_unrunnable(scope.agent, grants)):
        raise PermissionDenied(f"agent {scope.agent.key!r} may not go on: {found[0]}", agentKey=scope.agent.key)


def may_call_agent(scope: Scope, agent: Definition) -> bool:
    """Return whether the scope may call this agent, if it names it: an operator's agent calls no tenant's."""
    if agent.tenant:
        return agent.tenant == scope.agent.tenant
    grants = find_grants(scope)
    return grants is None or grants.allows_subagent(agent.key)
