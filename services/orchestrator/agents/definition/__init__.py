"""The format of agent files (docs/reference/agents.md), and the settings in force for each stage."""

from services.orchestrator.agents.definition.agent import Definition
from services.orchestrator.agents.definition.parts import Budget, ModelConfig
from services.orchestrator.agents.definition.reading import DefinitionError, parse_agent, read_definition
from services.orchestrator.agents.definition.sections import StageSettings

__all__ = ["Budget", "Definition", "DefinitionError", "ModelConfig", "StageSettings", "parse_agent", "read_definition"]
