"""The stage that a scope is in, and its system message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.orchestrator.agents.definition import StageSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from services.orchestrator.run.prompt_context import PromptContext
    from services.orchestrator.run.replay.replay import ScopeRecording


class ActiveStage:
    __slots__ = ("_logged_system", "name", "prompt_context", "settings", "system")

    def __init__(self, settings: StageSettings, logged_system: str) -> None:
        self.settings = settings
        self.name = settings.stage
        self.system = ""
        self.prompt_context: PromptContext | None = None
        self._logged_system = logged_system

    def enter(self, settings: StageSettings, values: Mapping[str, str], recording: ScopeRecording) -> None:
        assert self.prompt_context is not None, "a scope has its prompt context before its first stage"
        self.settings, self.name = settings, settings.stage
        recorded = "" if recording.is_used_up else recording.systems.get(self.name, "")
        self.system = recorded or self.prompt_context.system(settings, values)

    def take_unlogged_system(self) -> str | None:
        """Return None when the log has the system message already."""
        if self.system == self._logged_system:
            return None
        self._logged_system = self.system
        return self.system
