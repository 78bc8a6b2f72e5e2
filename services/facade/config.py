"""Settings of the facade."""

from __future__ import annotations

from dataclasses import dataclass

from services.runtime.config import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Read from HEADRACE_FACADE_* variables; deploy/compose.yaml shows them all."""

    host: str = "127.0.0.1"
    """The interface to listen on."""

    port: int = setting(8080, aliases=("SERVER_PORT",))
    """0: any free port; the log says which."""

    orchestrator_address: str = "127.0.0.1:7001"

    memory_address: str = "127.0.0.1:7003"

    tools_address: str = "127.0.0.1:7004"

    heartbeat_s: float = 15.0
    """A stream that was silent for so long gets a comment, so that proxies keep it open."""

    log_level: str = setting("INFO", name="HEADRACE_LOG_LEVEL")
    """DEBUG, INFO, WARNING or ERROR."""

    drain_s: float = setting(10.0, name="HEADRACE_DRAIN_S")
    """How long a stopping facade lets open streams go on; compose's stop_grace_period is longer."""

    def __post_init__(self) -> None:
        if self.port > 65535:
            raise ValueError(f"HEADRACE_FACADE_PORT: {self.port}: expected 0 to 65535")
        if self.heartbeat_s <= 0:
            raise ValueError("HEADRACE_FACADE_HEARTBEAT_S: expected more than 0")
