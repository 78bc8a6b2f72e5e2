"""The values of a run's prompts are found at its start and stay the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from services.orchestrator.agents import prompts
from services.orchestrator.agents.definition import StageSettings

WITHOUT_TOOLS = frozenset({"plan", "summary"})
"""The model gets no guidance on tools here."""


@dataclass(frozen=True, slots=True)
class PromptContext:
    values: Mapping[str, str]

    guidance: tuple[str, ...] = ()
    """Only a model with tools gets it."""

    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    def system(self, settings: StageSettings, values: Mapping[str, str]) -> str:
        parts = [prompts.fill_placeholders(settings.system_prompt, {**self.values, **values})]
        if settings.stage not in WITHOUT_TOOLS:
            parts += self.guidance
        return prompts.with_time("\n\n".join(parts), self.now)
