"""Settings of the orchestrator."""

from dataclasses import dataclass
from pathlib import Path

from services.runtime.config import ServerSettings, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Read from HEADRACE_ORCHESTRATOR_* variables; deploy/compose.yaml shows them all."""

    server: ServerSettings = ServerSettings(listen="127.0.0.1:7001")

    config_dir: Path = setting(Path("examples"), name="HEADRACE_CONFIG_DIR")
    """Holds agents/."""

    agents_dir: Path | None = setting(None, aliases=("AGENT_EXTERNAL_DIR",))
    """Where agent files are; empty: agents/ of the configuration folder."""

    refresh_interval_ms: int = setting(300, aliases=("AGENT_REFRESH_INTERVAL_MS",))
    """How long changes of agent files are collected before they take effect."""

    default_agent: str = ""
    """Key of the agent that answers when nobody is named; empty: the first key."""

    llm_gateway_address: str = "127.0.0.1:7002"

    memory_address: str = "127.0.0.1:7003"

    tools_address: str = "127.0.0.1:7004"

    advertise: str = ""
    """Address at which other replicas reach this one, and the name it owns runs by: a process that starts with it goes
    on with what the one before left. Empty: the first address of listen."""

    runs_max: int = 2000
    """Runs at a time, queued ones included; the next query gets OVERLOADED at once."""
