"""The values of a run's prompts, found at its start and kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from services.orchestrator.agents import prompts
from services.orchestrator.agents.definition import StageSettings

WITHOUT_TOOLS = frozenset({"plan", "summary"})


@dataclass(frozen=True, slots=True)
class PromptContext:
    values: Mapping[str, str]

    guidance: tuple[str, ...] = ()

    has_examples: bool = False
    """Whether the stages' examples are told, as they are to an agent that answers a person."""

    def system(self, settings: StageSettings, values: Mapping[str, str]) -> str:
        parts = [prompts.fill_placeholders(settings.system_prompt, {**self.values, **values})]
        if self.has_examples:
            parts.append(settings.examples)
        if settings.stage not in WITHOUT_TOOLS:
            parts += self.guidance
        return "\n\n".join(part for part in parts if part)
