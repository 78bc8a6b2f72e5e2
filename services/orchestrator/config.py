"""Settings of the orchestrator."""

from dataclasses import dataclass
from pathlib import Path

from services.runtime.process.config import ServerSettings, setting

LEASE_S_MAX = 600
"""Memory gives no longer ones."""


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

    lease_s: float = 15.0
    """How long a run waits for an owner that has died before another replica goes on with it. Renewed three times as
    often; all replicas have the same."""

    runs_max: int = 2000
    """Runs at a time, queued and waiting ones included; the next query gets OVERLOADED at once. With credentials a
    tenant may have as many as it leaves free, and then gets QUEUE_FULL."""

    tenant_runs_max: int = 50
    """Chats of a tenant whose runs are at work at a time, on each replica; further queries wait for one to end. Those
    whose runs wait for people do not count. Without credentials (HEADRACE_AUTH=none) there is one tenant, and no limit
    but runs_max."""

    tenant_waiting_max: int = 1000
    """Queries of a tenant that wait so; the next one gets QUEUE_FULL at once."""

    def __post_init__(self) -> None:
        if not 0 < self.lease_s <= LEASE_S_MAX:
            raise ValueError(f"HEADRACE_ORCHESTRATOR_LEASE_S: expected more than 0, and {LEASE_S_MAX} at most")
