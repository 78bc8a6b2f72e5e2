"""The values of a run's prompts: found at its start, and the same to its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from services.orchestrator.agents import prompts
from services.orchestrator.agents.definition import StageSettings

WITHOUT_TOOLS = frozenset({"plan", "summary"})
"""Stages whose model calls no ordinary tool and gets no guidance on tools."""


@dataclass(frozen=True, slots=True)
class PromptContext:
    """Values and guidance, shared by the scopes of a run."""

    values: Mapping[str, str]
    """Values of the placeholders that stay the same for the run."""

    guidance: tuple[str, ...] = ()
    """Texts after the prompt of a model with tools: hints, skills."""

    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    def system(self, settings: StageSettings, values: Mapping[str, str]) -> str:
        """Fill the system message of a stage; `values` are the stage's own placeholders."""
        parts = [prompts.fill_placeholders(settings.system_prompt, {**self.values, **values})]
        if settings.stage not in WITHOUT_TOOLS:
            parts += self.guidance
        return prompts.with_time("\n\n".join(parts), self.now)
