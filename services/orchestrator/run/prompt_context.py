"""What the system messages of a run are made from: found out at its start, and the same to its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from services.orchestrator.agents import prompts
from services.orchestrator.agents.definition import StageSettings

WITHOUT_TOOLS = frozenset({"plan", "summary"})
"""Stages whose model calls no ordinary tool, so that it is told nothing of how to use them."""


@dataclass(frozen=True, slots=True)
class PromptContext:
    """What a prompt may refer to. Shared by the scopes of a run."""

    values: Mapping[str, str]
    """Of the placeholders that stay the same for the run."""

    guidance: tuple[str, ...] = ()
    """For a model with tools, behind its prompt: hints, skills."""

    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    def system(self, settings: StageSettings, values: Mapping[str, str]) -> str:
        """The system message of a stage; `values` are of the placeholders that only it has."""
        parts = [prompts.fill_placeholders(settings.system_prompt, {**self.values, **values})]
        if settings.stage not in WITHOUT_TOOLS:
            parts += self.guidance
        return prompts.with_time("\n\n".join(parts), self.now)
