"""The stage that a scope is in: its settings, and the system message made from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.orchestrator.agents.definition import StageSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from services.orchestrator.run.prompt_context import PromptContext
    from services.orchestrator.run.replay.replay import ScopeRecording


class ActiveStage:
    """The prompt, model and tools in force in one scope, which goes from stage to stage."""

    __slots__ = ("_logged_system", "name", "prompt_context", "settings", "system")

    def __init__(self, settings: StageSettings, logged_system: str) -> None:
        """`logged_system` is the system message that the scope's log has already."""
        self.settings = settings
        self.name = settings.stage
        """The stage that steps are logged under; another one for messages of a stage that comes."""
        self.system = ""
        """The system message, fixed for a stage."""
        self.prompt_context: PromptContext | None = None
        """What system messages are made from; None: nothing is asked of a model yet."""
        self._logged_system = logged_system

    def enter(self, settings: StageSettings, values: Mapping[str, str], recording: ScopeRecording) -> None:
        """Put the settings of a stage into force; a recorded system message is the same again."""
        assert self.prompt_context is not None, "a scope has its prompt context before its first stage"
        self.settings, self.name = settings, settings.stage
        recorded = "" if recording.is_used_up else recording.systems.get(self.name, "")
        self.system = recorded or self.prompt_context.system(settings, values)

    def take_unlogged_system(self) -> str | None:
        """The system message, where the next line of the log has to tell it."""
        if self.system == self._logged_system:
            return None
        self._logged_system = self.system
        return self.system
