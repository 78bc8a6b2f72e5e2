"""Settings of the tools service."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from services.runtime.config import ServerSettings, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Read from HEADRACE_TOOLS_* variables; deploy/compose.yaml shows them all."""

    server: ServerSettings = ServerSettings(listen="127.0.0.1:7004")

    config_dir: Path = setting(Path("examples"), name="HEADRACE_CONFIG_DIR")
    """Definition files are in its folder tools/."""

    data_dir: Path = setting(Path(".data"), name="HEADRACE_DATA_DIR")
    """Workspaces are in its folder workspaces/."""

    llm_gateway_address: str = "127.0.0.1:7002"
    """Asked by tools that need a model."""

    sandbox: str = "auto"
    """Where the process tier fails its self-test: auto refuses commands, process does not start the service."""

    allow_unsandboxed: bool = setting(False, name="HEADRACE_ALLOW_UNSANDBOXED")
    """Run commands without any sandbox where none works. For machines on which nothing can be lost."""

    commands_max: int = 64
    """Commands at a time; the next one gets OVERLOADED at once. Each has a supervisor of 9 MB beside it."""

    bash_working_directory: Path | None = setting(None, aliases=("AGENT_BASH_WORKING_DIRECTORY",))
    """A folder that commands may read and write beside their workspace."""

    bash_allowed_paths: str = setting("", aliases=("AGENT_BASH_ALLOWED_PATHS",))
    """Paths, separated by commas, that commands may read."""

    def __post_init__(self) -> None:
        if self.sandbox not in ("auto", "process"):
            raise ValueError(f"HEADRACE_TOOLS_SANDBOX: {self.sandbox!r}: expected auto or process")
