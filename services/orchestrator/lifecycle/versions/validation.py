"""The RPC that says what is wrong with a definition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TypeAlias

from headrace.v1 import agent_pb2
from services.orchestrator.agents.definition import Definition
from services.orchestrator.agents.definition.problems import Problem, find_problems, list_unknown
from services.orchestrator.agents.definition.tool_lists import list_tool_names, number_names
from services.orchestrator.agents.version import TIERS
from services.orchestrator.calls.own_tools.catalogue import NAMES
from services.orchestrator.lifecycle.versions.pins import LISTING_S, list_known
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.setup import skills, tool_selection

PROBLEMS_MAX = 500

Check: TypeAlias = Callable[[Definition], list[Problem]]

FREE_TOOLS = NAMES | TIERS.keys()
"""What a tool list may have that no tools service has: the orchestrator's own tools, and words for tiers."""


async def validate_agent(
    peers: Peers,
    there_are: Mapping[str, Definition],
    modes: Collection[str],
    definition: str,
    agent_key: str,
    check: Check | None = None,
) -> tuple[Definition | None, list[agent_pb2.DefinitionProblem]]:
    """Return the agent, None if it has an error, and all problems; `check` finds those of whose agent it is to be."""
    # Half a megabyte of JSON takes longer than others should wait.
    agent, problems = await asyncio.to_thread(find_problems, definition.encode(), agent_key, check)
    if agent is not None:
        problems += await _find_missing(peers, there_are, agent)
        if agent.custom is not None:
            problems += list_unknown(iter([("custom.mode", agent.custom.mode)]), frozenset(modes), "mode")
    return agent, [make_problem(problem) for problem in problems[:PROBLEMS_MAX]]


def make_problem(problem: Problem) -> agent_pb2.DefinitionProblem:
    return agent_pb2.DefinitionProblem(field=problem.field, rule=problem.rule, is_warning=problem.is_warning)


async def _find_missing(peers: Peers, there_are: Mapping[str, Definition], agent: Definition) -> list[Problem]:
    """Warn of what the agent names and nobody has; nothing is said of what the tools service does not tell."""
    known = frozenset({agent.key.casefold(), *(key.casefold() for key in there_are)})
    found = list_unknown(number_names("subagents", agent.subagents), known, "agent")
    if agent.listed_tools:
        tools = await list_known(peers.tool_list, partial(tool_selection.fetch_tools, peers, LISTING_S))
        if tools is not None:
            catalogue = tool_selection.ToolCatalogue(tools)
            names = FREE_TOOLS | {tool.name.casefold() for tool in tools}
            # What an MCP server lists for each user apart is not known here.
            named = (each for each in list_tool_names(agent) if not catalogue.find_connecting(each[1]))
            found += list_unknown(named, names, "tool")
    if agent.skills:
        offered = await list_known(peers.skill_list, partial(skills.fetch_skills, peers, LISTING_S))
        if offered is not None:
            given = (name for skill in offered.skills for name in (skill.id, skill.name))
            found += list_unknown(number_names("skills", agent.skills), _fold(given), "skill")
    return found


def _fold(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.casefold() for name in names)
