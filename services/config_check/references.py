"""Finds names in valid files that nothing has: models, tools, skills, agents, views, and secrets that are not set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headrace.errors import HeadraceError
from services.config_check.definitions import AGENTS, APPROVALS, BUDGETS, MODES, TOOLS, Definitions
from services.llm_gateway.providers.credentials import Credentials
from services.llm_gateway.server import PROVIDER_FILE
from services.orchestrator.agents.definition import Definition, ModelConfig
from services.orchestrator.calls.own_tools.catalogue import FUNCTIONS, OWN
from services.orchestrator.peers.remote.http import Credentials as RemoteCredentials
from services.runtime.files.refused_files import Refusal
from services.tools.errors import ToolFailed
from services.tools.toolkit.api_request import find_headers

TIERS = ("@core", "@enabled")
"""Names in an agent's list that stand for all tools of a tier."""


def find_missing(definitions: Definitions) -> Iterator[Refusal]:
    """Find names that nothing in the folder has, in the files' order."""
    keys = {agent.key for agent in definitions.agents.values()}
    for file, agent in definitions.agents.items():
        for problem in _find_missing_of_agent(agent, definitions, keys):
            yield Refusal(f"{AGENTS}/{file}", problem)
    for tool in definitions.tools:
        if tool.unavailable and tool.front_end is not None:
            yield Refusal(f"{TOOLS}/{tool.name}", tool.unavailable)
    if not definitions.is_whole:
        return
    known = _list_tool_names(definitions)
    for name in definitions.ruled_tools:
        if not _is_known_tool(name, known, definitions):
            yield Refusal(APPROVALS, f"tools.{name}: there is no such tool")
    for key in definitions.budget_agents:
        if key not in keys:
            yield Refusal(BUDGETS, f"agent: no agent has the key {key!r}")


def find_unset_secrets(definitions: Definitions, env: Mapping[str, str]) -> Iterator[Refusal]:
    """Find providers, remote agents and tools whose addresses, keys or headers `env` does not have, as their services
    would at the first call."""
    credentials = Credentials(env)
    for provider in definitions.providers:
        try:
            credentials.find_keys(provider)
            credentials.find_endpoint(provider, provider.models[0].name, "")
        except HeadraceError as error:
            yield Refusal(PROVIDER_FILE, error.message)
    for file, agent in definitions.agents.items():
        if agent.remote is not None:
            try:
                RemoteCredentials(env).make_headers(agent.remote)
            except HeadraceError as error:
                yield Refusal(f"{AGENTS}/{file}", error.message)
    for name, request in definitions.requests.items():
        try:
            find_headers(request, env)
        except ToolFailed as error:
            yield Refusal(f"{TOOLS}/{name}", str(error))


def _find_missing_of_agent(agent: Definition, definitions: Definitions, keys: set[str]) -> Iterator[str]:
    for key in agent.subagents:
        if key not in keys:
            yield f"subagents: no agent has the key {key!r}"
    if agent.custom is not None and agent.custom.mode not in definitions.modes:
        yield f"custom.mode: there is no valid file {MODES}/{agent.custom.mode}.py"
    if not definitions.is_whole:
        return
    for model in _list_models(agent):
        if problem := _find_model_problem(model, definitions):
            yield f"modelConfig: {problem}"
    known = _list_tool_names(definitions)
    for name in agent.tools:
        if not _is_known_tool(name, known, definitions):
            yield f"toolConfig: there is no tool {name!r}"
    skills = {name.casefold() for skill in definitions.skills for name in (skill.id, skill.name)}
    for name in agent.skills:
        if name.casefold() not in skills:
            yield f"skills: there is no skill {name!r}"


def _list_models(agent: Definition) -> list[tuple[str, str]]:
    """Return provider and model of all stages and of `models`, each pair once."""
    base = agent.model_config_ or ModelConfig()
    others = (agent.models.vision, agent.models.code)
    models = [stage.model for stage in (*agent.stages, *agent.named_stages.values())]
    models += [model.merge_over(base) for model in others if model is not None]
    pairs = dict.fromkeys((model.provider_key or "", model.model or "") for model in models)
    # An agent elsewhere asks no model of ours, unless for titles and facts.
    return [pair for pair in pairs if agent.mode != "REMOTE" or pair != ("", "")]


def _find_model_problem(model: tuple[str, str], definitions: Definitions) -> str:
    key, name = model
    provider = next((provider for provider in definitions.providers if provider.key == key), None)
    if provider is None:
        known = ", ".join(provider.key for provider in definitions.providers)
        return f"provider {key!r} is not in {PROVIDER_FILE}; known: {known}"
    if provider.find_entry(name) is None:
        known = ", ".join(entry.name for entry in provider.models)
        return f"provider {key!r} has no model {name!r}; known: {known}"
    return ""


def _list_tool_names(definitions: Definitions) -> set[str]:
    own = {tool.name for tool in OWN} | {*FUNCTIONS}
    return {name.casefold() for name in (*own, *TIERS, *(tool.name for tool in definitions.tools))}


def _is_known_tool(name: str, known: set[str], definitions: Definitions) -> bool:
    """Return whether a tool has this name, or may have: what an MCP server offers is not known before it is asked."""
    server, is_mcp, _ = name.casefold().partition("__")
    return name.casefold() in known or bool(is_mcp and server in {each.casefold() for each in definitions.mcp_servers})
