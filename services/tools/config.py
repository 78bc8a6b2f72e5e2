"""Settings of the tools service."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from services.runtime.net.allow_list import parse_allow_list
from services.runtime.process.config import ServerSettings, setting
from services.tools.workspace.quota import RESERVE_BYTES

SECRETS_KEY_CHARS_MIN = 32

SANDBOXES = ("auto", "process", "bubblewrap", "external", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Read from HEADRACE_TOOLS_* variables; deploy/compose.yaml shows them all."""

    server: ServerSettings = ServerSettings(listen="127.0.0.1:7004")
    """Its gRPC server."""

    config_dir: Path = setting(Path("examples"), name="HEADRACE_CONFIG_DIR")
    """Folder that holds tools/, viewports/, tools.yaml, mcp.json and skills/."""

    data_dir: Path = setting(Path(".data"), name="HEADRACE_DATA_DIR")
    """Folder of everything that the services store; workspaces are in its folder workspaces."""

    llm_gateway_address: str = "127.0.0.1:7002"
    """Address of the gateway, for tools that call a model."""

    memory_address: str = "127.0.0.1:7003"
    """Address of the memory service, which knows the API keys created by RPC and the chats' owners; used unless
    HEADRACE_AUTH is `none`."""

    sandbox: str = "auto"
    """Sandbox tier of commands. `auto`: the strongest tier that works, but only `bubblewrap` if credentials separate
    tenants; if none works, commands are refused. `process`, `bubblewrap`: that tier, and the service does not start if
    its self-test fails. `external`: the service's pod runs under gVisor or Kata. `none`: no sandbox, which requires
    HEADRACE_ALLOW_UNSANDBOXED."""

    allow_unsandboxed: bool = setting(False, name="HEADRACE_ALLOW_UNSANDBOXED")
    """Whether commands run without any sandbox if no tier works; only for machines where nothing can be lost."""

    commands_max: int = 64
    """Maximum concurrent commands; the next one is refused with OVERLOADED immediately. Each has a supervisor process
    of 9 MB. With authentication, a tenant may have as many as remain free."""

    interpreters_max: int = 16
    """Maximum Python interpreters, one per run that uses the tool python; the one idle longest of the tenant with the
    most is ended for a new one. With authentication, a tenant may use as many at a time as remain free."""

    bash_working_directory: Path | None = setting(None, aliases=("AGENT_BASH_WORKING_DIRECTORY",))
    """Folder that commands may read and write in addition to their workspace; empty: none."""

    fetch_allow: str = ""
    """Hosts, host:port and networks outside the public web that fetch_web may reach, separated by commas."""

    search_url: str = ""
    """Address of a SearXNG, which must allow `json` (search.formats in its settings.yml), or of Bing's .../v7.0/search;
    empty: web_search and deep_search are unavailable."""

    search_key: str = setting("", secret=True)
    """The search endpoint's key, if it needs one."""

    secrets_key: str = setting("", secret=True)
    """Key that encrypts users' tokens for MCP servers (`oauth` of mcp.json) in the data folder: at least 32 unguessable
    characters, the same for all replicas. Empty: servers with `oauth` are not used. After a change, users must
    authorize again."""

    network_allow: str = ""
    """Hosts, host:port and networks that commands may reach through the proxy, separated by commas; only in the
    bubblewrap tier. Empty: commands have no network."""

    bash_allowed_paths: str = setting("", aliases=("AGENT_BASH_ALLOWED_PATHS",))
    """Paths that commands may read in addition to their workspace, separated by commas."""

    workspace_bytes_max: int = 1024**3
    """Maximum bytes of a chat's workspace, with 20,000 files and folders. A command that exceeds them is killed; then
    uploads and file tools are refused until files are deleted."""

    disk_reserve_bytes: int = RESERVE_BYTES
    """Bytes of the data folder's disk reserved for chats and call records: with less free, uploads and file tools are
    refused as on a full disk, and a command that adds more than a megabyte is killed. 0: none."""

    workspace_retention_days: float = 7.0
    """Days without use after which workspaces and call records are removed."""

    def __post_init__(self) -> None:
        for name, allowed in (("FETCH", self.fetch_allow), ("NETWORK", self.network_allow)):
            try:
                parse_allow_list(allowed)
            except ValueError as error:
                raise ValueError(f"HEADRACE_TOOLS_{name}_ALLOW: {error}") from error
        if self.search_url and not self.search_url.startswith(("http://", "https://")):
            raise ValueError("HEADRACE_TOOLS_SEARCH_URL: must begin with http:// or https://")
        if self.secrets_key and len(self.secrets_key) < SECRETS_KEY_CHARS_MIN:
            raise ValueError(f"HEADRACE_TOOLS_SECRETS_KEY: must have {SECRETS_KEY_CHARS_MIN} characters or more")
        if self.disk_reserve_bytes < 0:
            raise ValueError("HEADRACE_TOOLS_DISK_RESERVE_BYTES: must not be less than 0")
        if self.workspace_retention_days <= 0:
            raise ValueError("HEADRACE_TOOLS_WORKSPACE_RETENTION_DAYS: must be greater than 0")
        if self.sandbox not in SANDBOXES:
            raise ValueError(f"HEADRACE_TOOLS_SANDBOX: {self.sandbox!r}: expected one of {', '.join(SANDBOXES)}")
        if self.sandbox == "none" and not self.allow_unsandboxed:
            raise ValueError("HEADRACE_TOOLS_SANDBOX: none also needs HEADRACE_ALLOW_UNSANDBOXED=1")
