"""Agent files: what may stand in them, and what is in force for each stage of a run. The file's form is agents.md's."""

from services.orchestrator.agents.definition.agent import Definition
from services.orchestrator.agents.definition.budget import Budget
from services.orchestrator.agents.definition.parts import ModelConfig
from services.orchestrator.agents.definition.reading import DefinitionError, parse_agent
from services.orchestrator.agents.definition.settings import StageSettings

__all__ = ["Budget", "Definition", "DefinitionError", "ModelConfig", "StageSettings", "parse_agent"]
