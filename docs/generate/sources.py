"""All imports of the code described on the pages, in one place."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from headrace.cli import main as COMMAND_LINE
from headrace.contract import FILES, RPCS, SERVICES, find_comment
from headrace.errors import BY_REASON
from headrace.v1 import agent_pb2, tools_pb2
from services.facade.config import Config as FacadeConfig
from services.facade.proto_routes import Route, load_routes
from services.facade.responses.envelope import HTTP_STATUS
from services.llm_gateway.config import Config as LlmGatewayConfig
from services.llm_gateway.providers import provider_file
from services.memory.config import Config as MemoryConfig
from services.orchestrator.agents import grants as grant_rules
from services.orchestrator.agents.definition import agent, parts, sections
from services.orchestrator.agents.definition.modes import MODES
from services.orchestrator.agents.definition.parts import Budget, Memory, Recap, Summary
from services.orchestrator.agents.definition.sections import Remote, RemotePrice
from services.orchestrator.agents.prompts import ALIASES, NAMES
from services.orchestrator.calls.own_tools import catalogue, recall
from services.orchestrator.config import Config as OrchestratorConfig
from services.orchestrator.mode_api.mode import Mode
from services.orchestrator.money.budgets import File, Rule
from services.orchestrator.run.approvals import rules as approval_rules
from services.orchestrator.run.approvals.rules import BUILT_IN
from services.runtime.auth.answerer_rule import AnswererRule
from services.runtime.auth.callers import CALLERS, CLIENT
from services.runtime.auth.settings import AuthSettings as AUTH
from services.runtime.formats.json_form import rules_of
from services.runtime.process.config import PREFIX
from services.tools.builtin import BUILTIN
from services.tools.catalogue import definitions
from services.tools.catalogue import tool_tiers as tiers
from services.tools.config import Config as ToolsConfig
from services.tools.mcp_client import settings as mcp_settings
from services.tools.skills import skill_folder
from services.tools.toolkit.api_request import ApiRequest

__all__ = [
    "ALIASES",
    "AUTH",
    "BUILTIN",
    "BUILT_IN",
    "BY_REASON",
    "CALLERS",
    "CLIENT",
    "COMMAND_LINE",
    "CONFIGS",
    "FILES",
    "HTTP_STATUS",
    "MODELS",
    "MODES",
    "NAMES",
    "NOT_FOR_FILES",
    "OTHER_DEFAULTS",
    "OWN",
    "PREFIX",
    "RPCS",
    "SERVICES",
    "Mode",
    "Route",
    "agent_pb2",
    "find_comment",
    "load_routes",
    "rules_of",
    "tools_pb2",
]

OWN = (*catalogue.OWN, *recall.FACT_TOOLS)

# pyright: reportPrivateUsage=false
# Some models are private to the file that reads them, but the pages describe them.
MODELS: dict[str, type[BaseModel]] = {
    "fields": agent.Definition,
    "modelconfig": parts.ModelConfig,
    "reasoning": parts.ReasoningConfig,
    "toolconfig": parts.ToolConfig,
    "output": parts.OutputConfig,
    "models": agent.Models,
    "canary": agent.Canary,
    "budget": Budget,
    "memory": Memory,
    "recap": Recap,
    "memory-summary": Summary,
    "plain": sections.Section,
    "react": sections.React,
    "planexecute": sections.PlanExecute,
    "custom": sections.Custom,
    "remote": Remote,
    "remote-price": RemotePrice,
    "plan": sections.Planning,
    "file": provider_file.Providers,
    "provider": provider_file.Provider,
    "model": provider_file.Model,
    "price": provider_file.Price,
    "quota": provider_file.Quota,
    "timeouts": provider_file.Timeouts,
    "retry": provider_file.Retry,
    "tool-file": definitions._File,
    "tool": definitions.Definition,
    "request": ApiRequest,
    "front-matter": skill_folder._Front,
    "tools-yaml": tiers._File,
    "option": tiers.Option,
    "declared-credential": tiers.DeclaredCredential,
    "approvals-yaml": approval_rules._File,
    "budgets-yaml": File,
    "limit": Rule,
    "tenant-agents-yaml": grant_rules._File,
    "grant": grant_rules.Grant,
    "ceilings": grant_rules.Ceilings,
    "rule": approval_rules._ToolRule,
    "answerers": AnswererRule,
    "sampling": mcp_settings.Sampling,
    "root": mcp_settings.Root,
    "oauth": mcp_settings.OAuth,
    "stdio": mcp_settings.Stdio,
    "http": mcp_settings.Http,
}
"""Models of configuration files, by the anchor of the section that describes them."""

NOT_FOR_FILES: set[tuple[type[Any], str]] = {(agent.Definition, "hash")}
"""Fields that the service sets itself."""

OTHER_DEFAULTS: dict[tuple[type[Any], str], str] = {(agent.Definition, "key"): "the file's name"}
"""Defaults that are set outside the model, when the file is read."""

CONFIGS: dict[str, type[Any]] = {
    "orchestrator": OrchestratorConfig,
    "llm_gateway": LlmGatewayConfig,
    "memory": MemoryConfig,
    "tools": ToolsConfig,
    "facade": FacadeConfig,
}
"""Settings classes by service."""
