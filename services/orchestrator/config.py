"""Settings of the orchestrator."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from services.runtime.net.allow_list import parse_allow_list
from services.runtime.process.config import ServerSettings, setting
from services.runtime.telemetry.masking import find_secrets

LEASE_S_MAX = 600
"""Memory grants leases no longer than this."""

CONTINUE, CANCEL = "continue", "cancel"
"""Values of revoked_key_runs."""

FILES, STORE = "files", "store"
"""Values of agents_precedence."""

AGENTS_POLL_S_MAX = 1.5
"""Maximum poll interval; with it, a change of a tenant's agent reaches all replicas within 2 s."""


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
    """Key of the agent for queries that name none, in chats without an agent; empty: the agent with the first key."""

    agents_precedence: str = "files"
    """Precedence when a file and a tenant define an agent with the same key; must be the same on all replicas. `files`:
    the file's agent; PutAgent refuses the key, and a file added later disables the tenant's agent. `store`: the tenant
    gets its own agent, all other tenants the file's. ListAgentProblems reports both cases."""

    agents_poll_s: float = 1.0
    """Seconds between polls for agents that tenants have stored or deleted, 1.5 at most."""

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
    """Seconds after which another replica may continue a dead one's runs, 600 at most; must be the same for all
    replicas. Leases are renewed three times as often."""

    schedule_look_s: float = 5.0
    """Maximum seconds between polls for due schedules; a new schedule or a trigger may wait this long."""

    erasures_look_s: float = 5.0
    """Seconds between polls for data erasures; a requested erasure may wait this long to begin."""

    runs_max: int = 2000
    """Maximum live runs of this replica, including queued and waiting ones; the next query is refused with OVERLOADED
    immediately. With authentication, a tenant may have as many as remain free, and is then refused with QUEUE_FULL."""

    tenant_runs_max: int = 50
    """Chats of a tenant with active runs, per replica; further queries wait for one to end. Runs that wait for people
    do not count. With HEADRACE_AUTH=none there is a single tenant, limited only by runs_max."""

    tenant_waiting_max: int = 1000
    """Queries of a tenant that may wait for its runs to end; the next is refused with QUEUE_FULL immediately."""

    park_after_s: float = 5.0
    """Seconds after which a run that waits only for people is parked: its record stays, but it uses no resources of
    this replica. Any replica resumes it when it is answered, requested or due. Below 0: never."""

    remote_allow: str = ""
    """Hosts and networks outside the public web where remote agents (mode REMOTE) may be, separated by commas, such as
    `agents.corp:8080,10.1.0.0/16`. A host listed here needs no TLS and may use any port."""

    revoked_key_runs: str = "continue"
    """Treatment of live runs when the API key that started them is revoked, disabled or expires: `continue`, as after
    any client that has disconnected; or `cancel`. Runs started by a schedule, or since taken over by another replica,
    always continue."""

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
    """Return the values of environment variables whose names mark them as secret."""
    return find_secrets(os.environ)


def read_environment() -> Mapping[str, str]:
    """Return the environment, which supplies remote agents' credentials."""
    return os.environ
