"""The gateway's settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from services.runtime.process.config import ServerSettings, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Settings from HEADRACE_LLM_GATEWAY_* variables and those named below; deploy/compose.yaml shows all of them."""

    server: ServerSettings = ServerSettings(listen="127.0.0.1:7002")
    """Settings of the gRPC server."""

    config_dir: Path = setting(Path("examples"), name="HEADRACE_CONFIG_DIR")
    """Folder with providers.json."""

    replicas: int = 1
    """Number of gateways that share the providers' accounts; each keeps to an equal part of their quotas."""

    memory_address: str = ""
    """Address of the memory service, whose audit log records refused sign-ins; empty: they are not recorded."""

    interaction_log_enabled: bool = setting(True, aliases=("AGENT_LLM_INTERACTION_LOG_ENABLED",))
    """Whether the log has one line per model call (INFO), and with HEADRACE_LOG_LEVEL=DEBUG one per delta."""

    interaction_log_mask_sensitive: bool = setting(True, aliases=("AGENT_LLM_INTERACTION_LOG_MASK_SENSITIVE",))
    """Whether strings that look like credentials are masked in the DEBUG lines."""

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise ValueError("HEADRACE_LLM_GATEWAY_REPLICAS: expected 1 or more")
