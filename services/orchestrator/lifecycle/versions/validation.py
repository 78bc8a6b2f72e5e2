"""The RPC that says what is wrong with a definition."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial

from headrace.v1 import agent_pb2
from services.orchestrator.agents.definition import Definition
from services.orchestrator.agents.definition.problems import Problem, find_problems, list_unknown
from services.orchestrator.agents.version import TIERS
from services.orchestrator.calls.own_tools import facts, subagent
from services.orchestrator.calls.own_tools.catalogue import OWN
from services.orchestrator.lifecycle.versions.pins import LISTING_S, list_known
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.setup import skills, tool_selection

PROBLEMS_MAX = 500

OWN_NAMES = frozenset({tool.name.casefold() for tool in (*OWN, *facts.TOOLS)} | {subagent.NAME} | TIERS.keys())


async def validate_agent(
    peers: Peers,
    there_are: Mapping[str, Definition],
    modes: Collection[str],
    request: agent_pb2.ValidateAgentRequest,
) -> tuple[Definition | None, list[agent_pb2.DefinitionProblem]]:
    """Return the agent, None if it has an error, and all problems."""
    # Half a megabyte of JSON takes longer than others should wait.
    source = request.definition.encode()
    agent, problems = await asyncio.to_thread(find_problems, source, request.agent_key)
    if agent is not None:
        problems += await _find_missing(peers, there_are, agent)
        if agent.custom is not None:
            problems += list_unknown(iter([("custom.mode", agent.custom.mode)]), frozenset(modes), "mode")
    return agent, [
        agent_pb2.DefinitionProblem(field=problem.field, rule=problem.rule, is_warning=problem.is_warning)
        for problem in problems[:PROBLEMS_MAX]
    ]


async def _find_missing(peers: Peers, there_are: Mapping[str, Definition], agent: Definition) -> list[Problem]:
    """Warn of what the agent names and nobody has; nothing is said of what the tools service does not tell."""
    known = frozenset({agent.key.casefold(), *(key.casefold() for key in there_are)})
    found = list_unknown(_number("subagents", agent.subagents), known, "agent")
    if agent.listed_tools:
        tools = await list_known(peers.tool_list, partial(tool_selection.fetch_tools, peers, LISTING_S))
        if tools is not None:
            names = OWN_NAMES | {tool.name.casefold() for tool in tools}
            found += list_unknown(_list_tools(agent), names, "tool")
    if agent.skills:
        offered = await list_known(peers.skill_list, partial(skills.fetch_skills, peers, LISTING_S))
        if offered is not None:
            given = (name for skill in offered.skills for name in (skill.id, skill.name))
            found += list_unknown(_number("skills", agent.skills), _fold(given), "skill")
    return found


def _number(field: str, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    return ((f"{field}.{at}", name) for at, name in enumerate(names))


def _fold(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.casefold() for name in names)


def _list_tools(agent: Definition) -> Iterator[tuple[str, str]]:
    plan = agent.plan_execute
    sections = {
        "": agent,
        "plain.": agent.plain,
        "react.": agent.react,
        "planExecute.plan.": plan and plan.plan,
        "planExecute.execute.": plan and plan.execute,
        "planExecute.summary.": plan and plan.summary,
        "custom.": agent.custom,
        **{f"custom.stages.{name}.": own for name, own in (agent.custom.stages if agent.custom else {}).items()},
    }
    for path, section in sections.items():
        config = section.tool_config if section is not None else None
        lists: dict[str, Collection[str]] = (
            {"backends": config.backends, "frontends": config.frontends, "actions": config.actions} if config else {}
        )
        for kind, names in lists.items():
            yield from _number(f"{path}toolConfig.{kind}", names)
