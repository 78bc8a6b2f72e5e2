"""The agents of one tenant: those of files, which all have, and those that it has stored and may have."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from services.orchestrator.agents.definition import Definition
from services.orchestrator.agents.definition.problems import Problem
from services.orchestrator.agents.grants.check import find_ungranted
from services.orchestrator.agents.grants.rules import TenantGrants
from services.orchestrator.agents.stored_agents import StoredAgent

FILE_WINS = "the operator has an agent of this key in a file, and files win"


@dataclass(frozen=True)
class TenantView:
    agents: Mapping[str, Definition]
    """Those in force by key; each key is one agent's, whatever its case."""

    beside_own: Mapping[str, Definition]
    """What runs of the tenant's own agents may come to: its own, granted ones of files, and those below these."""

    problems: Mapping[str, list[Problem]] = field(default_factory=dict[str, "list[Problem]"])
    """Why stored agents are not in force, by key."""

    hidden: Collection[str] = ()
    """Keys of files' agents in whose place the tenant has its own."""


def make_view(
    files: Mapping[str, Definition],
    stored: Mapping[str, StoredAgent],
    grants: TenantGrants,
    free_tools: Collection[str],
    *,
    files_win: bool,
) -> TenantView:
    operators = {key.casefold(): agent for key, agent in files.items()}
    problems: dict[str, list[Problem]] = {}
    own: dict[str, Definition] = {}
    for folded, one in stored.items():
        found = _find_problems(one, grants, free_tools, operators.keys())
        if files_win and folded in operators:
            found.insert(0, Problem("key", FILE_WINS))
        if found:
            problems[one.record.agent_key] = found
        elif one.agent is not None:
            own[one.agent.key] = one.agent
    taken = {key.casefold() for key in own}
    granted = [agent for agent in operators.values() if grants.allows_subagent(agent.key)]
    return TenantView(
        agents={key: agent for key, agent in files.items() if key.casefold() not in taken} | own if own else files,
        beside_own={agent.key: agent for agent in _list_below(granted, operators)} | own,
        problems=problems,
        hidden=sorted(key for key in files if key.casefold() in taken),
    )


def _find_problems(
    one: StoredAgent, grants: TenantGrants, free_tools: Collection[str], operators: Collection[str]
) -> list[Problem]:
    if one.agent is None:
        return [Problem("", f"this release cannot read it: {one.problem}")]
    return find_ungranted(one.agent, grants, free_tools, operators)


def _list_below(agents: list[Definition], operators: Mapping[str, Definition]) -> list[Definition]:
    found: dict[str, Definition] = {}
    left = [*agents]
    while left:
        agent = left.pop()
        found[agent.key] = agent
        below = (operators.get(key.casefold()) for key in agent.subagents)
        left += [one for one in below if one is not None and one.key not in found]
    return [*found.values()]
