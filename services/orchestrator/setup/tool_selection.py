"""Selects the tools that a run's model sees: listed by the agent by name or tier, always offered, or mentioned."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial

import structlog

from headrace.errors import ProviderUnavailable
from headrace.v1 import tools_pb2
from services.orchestrator.agents.definition import Definition
from services.orchestrator.agents.grants import TenantGrants
from services.orchestrator.agents.version import TIERS, AgentVersion
from services.orchestrator.calls.executor import KINDS
from services.orchestrator.calls.own_tools import recall, subagent
from services.orchestrator.calls.own_tools.catalogue import OWN
from services.orchestrator.calls.own_tools.planning import PLAN_NAMES
from services.orchestrator.peers.stubs import DISPENSABLE_S, Peers, limit_tools_wait
from services.orchestrator.run.approvals.rules import SCHEDULED_TIMEOUT_MS
from services.orchestrator.run.scope import Scope, find_grants
from services.runtime.auth.identity import require_identity

OWN_BY_NAME = {tool.name.casefold(): tool for tool in OWN}

SEEN_FIELDS = ("name", "description", "parameters", "tier", "always_available", "after_call_hint")
"""Fields that a version pins: the tools that a model sees, and their definitions."""

log = structlog.get_logger()


class ToolCatalogue:
    """All usable tools by name, case-insensitive, except the plan tools, which only stages have.

    With a version, its agents' tools are as pinned, and the only others are those that MCP servers list for the run's
    user.
    """

    def __init__(
        self,
        tools: Iterable[tools_pb2.Tool] = (),
        version: AgentVersion | None = None,
        *,
        is_resumed: bool = False,
        grants: TenantGrants | None = None,
    ) -> None:
        """`is_resumed` keeps tools of the version that are no longer available, so that a call reports it to the model.

        Other tools are limited to `grants`; None grants all.
        """
        tools = [*tools]
        self._per_user = {f"{tool.per_user_server}__".casefold() for tool in tools if tool.HasField("per_user_server")}
        existing = {tool.name.casefold(): tool for tool in tools if grants is None or grants.allows_tool(tool.name)}
        self._live = existing
        if version is not None and version.tools is not None:
            own = {name: tool for name, tool in existing.items() if self._per_user and self._is_per_user(tool.name)}
            pinned: dict[str, tools_pb2.Tool] = {}
            for tool in version.tools:
                is_kept = is_resumed or grants is None or grants.allows_tool(tool.name)
                if is_kept and not (self._per_user and self._is_per_user(tool.name)):
                    name = tool.name.casefold()
                    pinned[name] = _pin_tool(tool, existing.get(name), is_resumed)
            existing = pinned | own
        self._tools = {name: tool for name, tool in existing.items() if name not in PLAN_NAMES}
        self._tools |= OWN_BY_NAME

    @property
    def has_any(self) -> bool:
        return len(self._tools) > len(OWN) or bool(self._live)

    def find_mentioned(self, name: str) -> tools_pb2.Tool | None:
        """Return a tool that the agent may see, or any other that exists now."""
        live = self._live.get(name.casefold()) if name.casefold() not in PLAN_NAMES else None
        return self.find_tool(name) or live

    def find_tool(self, name: str) -> tools_pb2.Tool | None:
        return self._tools.get(name.casefold())

    def find_connecting(self, name: str) -> tools_pb2.Tool | None:
        """Return the tool that connects a user to the MCP server of `name`, if that server lists tools per user."""
        found = (self._live.get(f"{server}connect") for server in self._per_user if name.casefold().startswith(server))
        return next(found, None)

    def _is_per_user(self, name: str) -> bool:
        live = self._live.get(name.casefold())
        if live is not None:
            return live.HasField("per_user_server")
        # Versions of earlier releases have pinned what was listed with any user's token.
        return name.casefold().startswith(tuple(self._per_user))

    def list_tier(self, tier: str) -> list[str]:
        return [tool.name for tool in self._tools.values() if tool.tier == tier and not find_problem(tool)]

    def list_core(self) -> list[str]:
        return [tool.name for tool in self._tools.values() if tool.always_available and not find_problem(tool)]


async def load_catalogue(scope: Scope, peers: Peers) -> ToolCatalogue:
    """List the tools; an agent that lists none can run without the tools service.

    Raises:
        ProviderUnavailable: The service did not come back within half of the run's time.
    """
    wait_s = limit_tools_wait(scope.run.spending.time_left_s, is_needed=bool(scope.agent.working_tools))
    is_resumed = bool(scope.run.past.reason)  # its calls that wait want the tools that they are of
    try:
        tools = await list_tools(peers, wait_s, wait_s if is_resumed else DISPENSABLE_S)
    except ProviderUnavailable:
        if scope.agent.working_tools:
            raise
        log.warning("tools not listed", run_id=scope.run.id)
        tools = ()
    grants = find_grants(scope)
    return ToolCatalogue(tools, scope.run.version, is_resumed=is_resumed, grants=grants)


async def find_catalogue(scope: Scope, peers: Peers) -> ToolCatalogue:
    """List the tools; empty if the tools service does not answer soon."""
    try:
        tools = await list_tools(peers, DISPENSABLE_S, DISPENSABLE_S)
    except ProviderUnavailable:
        return ToolCatalogue()
    return ToolCatalogue(tools, grants=find_grants(scope))


async def list_tools(peers: Peers, wait_s: float, user_wait_s: float) -> Sequence[tools_pb2.Tool]:
    """List the current user's tools; those that exist only for this user are left out after `user_wait_s`.

    Raises:
        ProviderUnavailable: The common tools are not listed within `wait_s`.
    """
    tools = await peers.tool_list.get_or_ask(None, partial(fetch_tools, peers, wait_s))
    for_all = {tool.name for tool in tools if tool.HasField("per_user_server")}
    if not for_all:
        return tools
    try:
        own = await peers.user_tools.get_or_ask(
            require_identity(), partial(_fetch_user_tools, peers, user_wait_s, for_all)
        )
    except ProviderUnavailable:
        log.warning("tools of the user not listed")
        own = ()
    return [*tools, *own]


async def fetch_tools(peers: Peers, wait_s: float, *, common: bool = True) -> Sequence[tools_pb2.Tool]:
    """Request the tools; with `common` only those that are the same for all users."""
    request = tools_pb2.ListToolsRequest(common_only=common)
    return (await peers.tools.ListTools(request, timeout=wait_s)).tools


async def _fetch_user_tools(peers: Peers, wait_s: float, for_all: Collection[str]) -> Sequence[tools_pb2.Tool]:
    tools = await fetch_tools(peers, wait_s, common=False)
    return [tool for tool in tools if tool.HasField("per_user_server") and tool.name not in for_all]


async def select_tools(scope: Scope, existing: ToolCatalogue, named: Iterable[str]) -> list[tools_pb2.Tool]:
    """Select the tools; those `named` in the message or chat but missing are reported to the user."""
    usable, problems = find_usable_tools(scope, existing, named)
    for problem in problems:
        await scope.notice("TOOL_UNAVAILABLE", problem)
    return [_wait_longer(tool) for tool in usable] if scope.run.is_scheduled else usable


def _wait_longer(tool: tools_pb2.Tool) -> tools_pb2.Tool:
    """Return the tool with the timeout of approvals in a schedule's run, if it waits for a person and states none."""
    if tool.kind != "frontend" or tool.timeout_ms > 0:
        return tool
    longer = tools_pb2.Tool()
    longer.CopyFrom(tool)
    longer.timeout_ms = SCHEDULED_TIMEOUT_MS
    return longer


def find_usable_tools(
    scope: Scope, existing: ToolCatalogue, named: Iterable[str]
) -> tuple[list[tools_pb2.Tool], list[str]]:
    """Return the usable tools, and problems with the others."""
    may_name = find_nameable(scope.agent, existing)
    others = {name.casefold(): name for name in named}
    problems = [describe_unnameable(name) for key, name in others.items() if key not in may_name]
    wanted = dict.fromkeys([*_expand(scope.agent.working_tools, existing), *existing.list_core()])
    wanted |= dict.fromkeys(name for key, name in others.items() if key in may_name)
    wanted.pop(subagent.NAME, None)
    usable: dict[str, tools_pb2.Tool] = {}
    for name in wanted:
        tool = existing.find_mentioned(name) if name.casefold() in others else existing.find_tool(name)
        tool = tool or existing.find_connecting(name)
        if tool is None:
            server, is_mcp, _ = name.partition("__")
            or_down = f", or its MCP server {server!r} is not connected" if server and is_mcp else ""
            problems.append(f"there is no tool {name!r}{or_down}; the agent continues without it")
        elif why := find_problem(tool):
            problems.append(f"tool {name!r} cannot be used: {why}")
        else:
            usable[tool.name] = tool
    if subagent.is_offered(scope):
        usable[subagent.NAME] = subagent.describe_tool(scope)
    if recall.are_offered(scope):
        usable |= {tool.name: tool for tool in recall.FACT_TOOLS}
    return [*usable.values()], problems


def find_nameable(agent: Definition, existing: ToolCatalogue) -> set[str]:
    """Return the names, in lower case, of the tools that a user may request."""
    listed = _expand((*agent.working_tools, *agent.mentionable), existing)
    return {name.casefold() for name in (*listed, *existing.list_core())}


def describe_unnameable(name: str) -> str:
    return f"tool {name!r} cannot be used: neither toolConfig nor mentionable of the agent names it"


def _expand(names: Iterable[str], existing: ToolCatalogue) -> list[str]:
    """Return the names with each tier replaced by its tools."""
    expanded: list[str] = []
    for name in names:
        tier = TIERS.get(name.casefold())
        expanded += [name] if tier is None else existing.list_tier(tier)
    return expanded


def _pin_tool(pinned: tools_pb2.Tool, live: tools_pb2.Tool | None, is_resumed: bool) -> tools_pb2.Tool:
    """Return the tool as pinned for the model, with the current safety settings.

    An operator's changes of approvals, answerers, effects and timeouts apply at once, even to active runs.
    """
    if live is None:
        return pinned
    tool = tools_pb2.Tool()
    tool.CopyFrom(live)
    for field in SEEN_FIELDS:
        tool.ClearField(field)
    tool.MergeFrom(_copy_seen(pinned))
    if is_resumed:
        tool.ClearField("unavailable")
    return tool


def _copy_seen(pinned: tools_pb2.Tool) -> tools_pb2.Tool:
    return tools_pb2.Tool(
        name=pinned.name,
        description=pinned.description,
        parameters=pinned.parameters,
        tier=pinned.tier,
        always_available=pinned.always_available,
        after_call_hint=pinned.after_call_hint if pinned.HasField("after_call_hint") else None,
    )


def find_problem(tool: tools_pb2.Tool) -> str:
    """Return why the tool cannot be used; empty if it can."""
    if tool.HasField("unavailable"):
        return tool.unavailable
    return "" if tool.kind in KINDS else f"its kind {tool.kind!r} is not known"
