"""Reads all files of a configuration folder, each with its service's own reader, and collects what they refuse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from services.llm_gateway.providers.catalogue import Catalogue as ProviderCatalogue
from services.llm_gateway.providers.provider_file import Provider
from services.llm_gateway.server import PROVIDER_FILE
from services.memory.data.retention import RetentionFile
from services.orchestrator.agents.definition import Definition
from services.orchestrator.agents.grants import NAME as GRANTS
from services.orchestrator.agents.grants import GrantsFile
from services.orchestrator.agents.mode_files import ModeFiles
from services.orchestrator.agents.registry import Registry
from services.orchestrator.money.budgets import EACH, BudgetsFile
from services.orchestrator.run.approvals.rules import RulesFile
from services.runtime.files.refused_files import Refusal, collecting_refusals
from services.tools.catalogue.catalogue import Catalogue as ToolCatalogue
from services.tools.mcp_client.servers import FILE as MCP_FILE
from services.tools.mcp_client.settings import BadMcpFile, read_servers
from services.tools.skills.skill_folder import Skill, SkillFolder
from services.tools.toolkit.api_request import ApiRequest
from services.tools.toolkit.tool import Tool

AGENTS, APPROVALS, BUDGETS, SKILLS, TOOLS = "agents", "approvals.yaml", "budgets.yaml", "skills", "tools"
MODES = "modes"
RETENTION = "retention.yaml"
"""Name of the file of HEADRACE_MEMORY_RETENTION_FILE, where it lies in the folder."""


@dataclass(frozen=True, slots=True)
class Definitions:
    """A folder's definitions that the services would put in force."""

    agents: Mapping[str, Definition]
    """Agents by the name of their file."""

    modes: Sequence[str]
    """Names of the operator's own modes."""

    providers: Sequence[Provider]
    tools: Sequence[Tool]

    requests: Mapping[str, ApiRequest]
    """Requests to HTTP APIs by the name of their tool."""

    skills: Sequence[Skill]
    mcp_servers: Sequence[str]
    """Names of the servers of mcp.json, whose tools only they know."""

    ruled_tools: Sequence[str]
    """Names of tools that approvals.yaml has rules for."""

    budget_agents: Sequence[str]
    """Keys of agents that budgets.yaml limits."""

    is_whole: bool
    """Whether the folder has agents and valid providers: one that is mounted into a single service has the one or the
    other, and what its files name lies elsewhere."""


def read_definitions(folder: Path, env: Mapping[str, str]) -> tuple[Definitions, list[Refusal]]:
    """Return what the folder defines, and what is refused, by the path of its file within the folder."""
    registry, rules = Registry(folder / AGENTS), RulesFile(folder / APPROVALS)
    grants = GrantsFile(folder / GRANTS)
    budgets, providers = BudgetsFile(folder / BUDGETS), ProviderCatalogue(folder / PROVIDER_FILE)
    tools, skills = ToolCatalogue(folder / TOOLS), SkillFolder(folder / SKILLS)
    refusals: list[Refusal] = []
    with collecting_refusals() as found:
        registry.reload()
        refusals += [Refusal(f"{AGENTS}/{refusal.file}", refusal.problem) for refusal in found]
    modes = ModeFiles(folder / MODES)
    with collecting_refusals() as found:
        modes.reload()
        refusals += [Refusal(f"{MODES}/{refusal.file}", refusal.problem) for refusal in found]
    with collecting_refusals() as found:
        rules.reload()
        budgets.reload()
        grants.reload()
        if (folder / PROVIDER_FILE).exists():
            providers.reload()
        refusals += [Refusal(Path(refusal.file).name, refusal.problem) for refusal in found]
    with collecting_refusals() as found:
        tools.reload()
        for refusal in found:
            # Views are named with their folder, others by the name alone.
            has_folder = "/" in refusal.file or refusal.file == "tools.yaml"
            refusals.append(Refusal(refusal.file if has_folder else f"{TOOLS}/{refusal.file}", refusal.problem))
    with collecting_refusals() as found:
        known_skills = skills.list_skills()
        refusals += [Refusal(f"{SKILLS}/{refusal.file}", refusal.problem) for refusal in found]
    servers, mcp_refusals = _read_mcp_servers(folder / MCP_FILE, env)
    refusals += _check_retention(folder / RETENTION)
    budget_rules = () if any(refusal.file == BUDGETS for refusal in refusals) else budgets.current.rules
    definitions = Definitions(
        agents=registry.by_file,
        modes=modes.names,
        providers=providers.providers,
        tools=tools.list_tools(),
        requests=tools.requests,
        skills=known_skills,
        mcp_servers=servers,
        ruled_tools=list(rules.current.tools),
        budget_agents=sorted({rule.agent for rule in budget_rules if rule.agent not in (None, EACH)}),
        is_whole=providers.is_loaded and (folder / AGENTS).is_dir(),
    )
    return definitions, refusals + mcp_refusals


def _check_retention(path: Path) -> list[Refusal]:
    if not path.exists():
        return []
    try:
        RetentionFile(path, None).read()
    except ValueError as error:
        return [Refusal(RETENTION, str(error))]
    except OSError as error:
        return [Refusal(RETENTION, error.strerror or str(error))]
    return []


def _read_mcp_servers(path: Path, env: Mapping[str, str]) -> tuple[list[str], list[Refusal]]:
    try:
        stated = read_servers(path, env)
    except BadMcpFile as error:
        return [], [Refusal(MCP_FILE, str(error))]
    lines = ((name, line) for name, problem in stated.problems.items() for line in problem.splitlines())
    refusals = [Refusal(MCP_FILE, f"mcpServers.{name}: {line}") for name, line in lines]
    return [*stated.servers, *stated.problems], refusals
