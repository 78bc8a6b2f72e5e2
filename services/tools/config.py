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
    """Folder of everything that the services keep; workspaces are in its folder workspaces."""

    llm_gateway_address: str = "127.0.0.1:7002"
    """Address of the gateway, for tools that ask a model."""

    memory_address: str = "127.0.0.1:7003"
    """Address of the memory service, which has the API keys that were made by RPC, and says whose a chat is; asked
    where HEADRACE_AUTH is not `none`."""

    sandbox: str = "auto"
    """Sandbox tier of commands. `auto`: the strongest tier that works, and `bubblewrap` alone where credentials tell
    tenants apart; where none does, commands are refused. `process`, `bubblewrap`: that tier, and the service does not
    start where it fails its self-test. `external`: the service's pod is under gVisor or Kata. `none`: nothing, which
    needs HEADRACE_ALLOW_UNSANDBOXED."""

    allow_unsandboxed: bool = setting(False, name="HEADRACE_ALLOW_UNSANDBOXED")
    """Whether commands run without any sandbox where no tier works: for machines on which nothing can be lost."""

    commands_max: int = 64
    """Commands at a time; the next one is refused with OVERLOADED at once. Each has a supervisor of 9 MB beside it."""

    interpreters_max: int = 16
    """Python interpreters alive at a time, one for each run that uses the tool python; the idlest one gives way."""

    bash_working_directory: Path | None = setting(None, aliases=("AGENT_BASH_WORKING_DIRECTORY",))
    """Folder that commands may read and write beside their workspace; empty: none."""

    fetch_allow: str = ""
    """Hosts, host:port and networks, separated by commas, that fetch_web may reach beside the public web."""

    search_url: str = ""
    """Address of a SearXNG, or of Bing's .../v7.0/search; empty: web_search and deep_search are unavailable."""

    search_key: str = setting("", secret=True)
    """The search endpoint's key, where it has one."""

    secrets_key: str = setting("", secret=True)
    """What users' tokens for MCP servers (`oauth` of mcp.json) are encrypted with in the data folder, the same for all
    replicas: 32 characters or more, that nobody can guess. Empty: no server with `oauth` is used. With another key,
    users authorize anew."""

    network_allow: str = ""
    """Hosts, host:port and networks, separated by commas, that commands reach through the proxy; in the bubblewrap tier
    alone. Empty: commands have no network."""

    bash_allowed_paths: str = setting("", aliases=("AGENT_BASH_ALLOWED_PATHS",))
    """Paths, separated by commas, that commands may read beside their workspace."""

    workspace_bytes_max: int = 1024**3
    """Bytes that a chat's workspace may hold, with 20,000 files and folders; a command that exceeds them is killed, and
    uploads and file tools are refused until something is deleted."""

    disk_reserve_bytes: int = RESERVE_BYTES
    """Bytes of the data folder's disk that are left to chats and to records of calls: with less, uploads and file tools
    are refused as on a full disk, and a command that adds more than a megabyte is killed. 0: none."""

    workspace_retention_days: float = 7.0
    """Days after which workspaces, and the records of what calls have done, are removed when nobody has used them."""

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
            raise ValueError("HEADRACE_TOOLS_SANDBOX: none needs HEADRACE_ALLOW_UNSANDBOXED=1 beside it")
