"""Settings of the orchestrator."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from services.runtime.net.allow_list import parse_allow_list
from services.runtime.process.config import ServerSettings, setting
from services.runtime.telemetry.masking import find_secrets

LEASE_S_MAX = 600
"""Memory gives no longer leases."""

CONTINUE, CANCEL = "continue", "cancel"
"""Words of revoked_key_runs."""

FILES, STORE = "files", "store"
"""Words of agents_precedence."""

AGENTS_POLL_S_MAX = 1.5
"""With it a change of a tenant's agent is in force on all replicas within 2 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Read from HEADRACE_ORCHESTRATOR_* variables."""

    server: ServerSettings = ServerSettings(listen="127.0.0.1:7001")
    """Its gRPC server."""

    config_dir: Path = setting(Path("examples"), name="HEADRACE_CONFIG_DIR")
    """Folder that holds agents/, modes/, approvals.yaml, budgets.yaml and tenant-agents.yaml."""

    agents_dir: Path | None = setting(None, aliases=("AGENT_EXTERNAL_DIR",))
    """Folder of the agent files; empty: agents/ of the configuration folder."""

    refresh_interval_ms: int = setting(300, aliases=("AGENT_REFRESH_INTERVAL_MS",))
    """Milliseconds for which changes of agent files are collected before they take effect."""

    default_agent: str = ""
    """Key of the agent for queries that name none, in chats that have none; empty: the agent with the first key."""

    agents_precedence: str = "files"
    """Which agent a key means that a file and a tenant both have, the same for all replicas. `files`: that of the file;
    PutAgent refuses the key, and where the file comes later the tenant's agent is not in force. `store`: for that
    tenant its own, and for all others that of the file. ListAgentProblems tells of either."""

    agents_poll_s: float = 1.0
    """Seconds between looks for agents that tenants have stored or deleted, 1.5 at most."""

    llm_gateway_address: str = "127.0.0.1:7002"
    """Address of the gateway: host:port, `dns:///name:port` for all replicas behind a name, or unix:/path."""

    memory_address: str = "127.0.0.1:7003"
    """Address of the memory service."""

    tools_address: str = "127.0.0.1:7004"
    """Address of the tools service."""

    advertise: str = ""
    """Address at which other replicas reach this one and under which it owns runs; a restarted process continues the
    runs of its address. Empty: the first address of listen."""

    lease_s: float = 15.0
    """Seconds after which another replica may continue a dead one's runs, 600 at most, the same for all replicas.
    Leases are renewed three times as often."""

    schedule_look_s: float = 5.0
    """Longest time in seconds between looks for schedules that are due: after it a new one or a trigger is seen."""

    erasures_look_s: float = 5.0
    """Time in seconds between looks for erasures of data: one that is asked for begins after as long at most."""

    runs_max: int = 2000
    """Live runs of this replica, queued and waiting ones included; the next query is refused with OVERLOADED at once.
    With credentials a tenant may have as many as it leaves free, and is then refused with QUEUE_FULL."""

    tenant_runs_max: int = 50
    """Chats of a tenant with runs at work, on each replica; further queries wait for one to end. Runs that wait for
    people do not count. With HEADRACE_AUTH=none there is one tenant, and no limit but runs_max."""

    tenant_waiting_max: int = 1000
    """Queries of a tenant that wait for its runs to end; the next is refused with QUEUE_FULL at once."""

    park_after_s: float = 5.0
    """Seconds after which a run is parked that waits for people alone: it keeps its record and nothing of this replica,
    and goes on at any replica when it is answered, asked for or due. Below 0: never."""

    remote_allow: str = ""
    """Hosts and networks beside the public web at which remote agents (mode REMOTE) may be, separated by commas, such
    as `agents.corp:8080,10.1.0.0/16`; a host named here may do without TLS, and have any port."""

    revoked_key_runs: str = "continue"
    """What becomes of a live run when the API key that asked for it is revoked, disabled or expires: `continue`, it
    goes on as after any caller that has left; `cancel`, it is cancelled. A run that another replica has taken over
    since, or that a schedule began, goes on."""

    def __post_init__(self) -> None:
        try:
            parse_allow_list(self.remote_allow)
        except ValueError as error:
            raise ValueError(f"HEADRACE_ORCHESTRATOR_REMOTE_ALLOW: {error}") from error
        if not self.schedule_look_s > 0:
            raise ValueError("HEADRACE_ORCHESTRATOR_SCHEDULE_LOOK_S: expected more than 0")
        if not self.erasures_look_s > 0:
            raise ValueError("HEADRACE_ORCHESTRATOR_ERASURES_LOOK_S: expected more than 0")
        if self.revoked_key_runs not in (CONTINUE, CANCEL):
            raise ValueError(
                f"HEADRACE_ORCHESTRATOR_REVOKED_KEY_RUNS: {self.revoked_key_runs!r}: expected {CONTINUE} or {CANCEL}"
            )
        if self.agents_precedence not in (FILES, STORE):
            raise ValueError(
                f"HEADRACE_ORCHESTRATOR_AGENTS_PRECEDENCE: {self.agents_precedence!r}: expected {FILES} or {STORE}"
            )
        if not 0 < self.agents_poll_s <= AGENTS_POLL_S_MAX:
            raise ValueError(
                f"HEADRACE_ORCHESTRATOR_AGENTS_POLL_S: expected more than 0, and {AGENTS_POLL_S_MAX:g} at most"
            )
        if not 0 < self.lease_s <= LEASE_S_MAX:
            raise ValueError(f"HEADRACE_ORCHESTRATOR_LEASE_S: expected more than 0, and {LEASE_S_MAX} at most")


def read_secrets() -> tuple[str, ...]:
    """Return the values in the environment whose names say that they are secret."""
    return find_secrets(os.environ)


def read_environment() -> Mapping[str, str]:
    """Return the environment, in which remote agents' credentials are looked up."""
    return os.environ
