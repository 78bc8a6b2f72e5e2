"""Settings of the facade."""

from __future__ import annotations

import re
from dataclasses import dataclass

from services.runtime.auth.settings import AuthSettings
from services.runtime.process import tls, transport
from services.runtime.process.config import setting

_ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:\d{1,5})?|https?://\[[0-9a-f:]+\](:\d{1,5})?")
"""As browsers write it in the header Origin: in lower case, without a path."""


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

    slow_reader_s: float = 60.0
    """A client that takes nothing of its stream for so long is hung up on; its run goes on."""

    idle_s: float = 75.0
    """How long a connection may take to send the head of its next request. Longer than proxies keep one (60 s is
    usual), which would else send a request into a connection that is being closed."""

    cors_origins: str = ""
    """Origins whose pages may call this facade, separated by commas: https://app.example. Empty: none."""

    log_level: str = setting("INFO", name="HEADRACE_LOG_LEVEL")
    """DEBUG, INFO, WARNING or ERROR."""

    drain_s: float = setting(10.0, name="HEADRACE_DRAIN_S")
    """How long a stopping facade lets open streams go on; compose's stop_grace_period is longer."""

    transport: str = setting(transport.DEFAULT, name=transport.VARIABLE)
    """h2 or grpcio, to the services behind; services/runtime/process/transport.py reads it itself."""

    tls_cert: str = setting("", name=tls.CERT)
    """The facade's certificate for the services behind, a file in PEM; services/runtime/process/tls.py reads it itself.
    Empty: plain text. Browsers' TLS ends at the proxy in front, or at deploy/gateway."""

    tls_key: str = setting("", name=tls.KEY)
    """Its key, a file."""

    tls_ca: str = setting("", name=tls.CA)
    """The CA that signs the certificates of the suite, a file."""

    auth: AuthSettings = AuthSettings()
    """Whose requests are served."""

    def __post_init__(self) -> None:
        self.auth.check([f"{self.host}:{self.port}"], has_certificates=bool(self.tls_ca))
        transport.check(self.transport)
        tls.check(self.tls_cert, self.tls_key, self.tls_ca, self.transport)
        if self.port > 65535:
            raise ValueError(f"HEADRACE_FACADE_PORT: {self.port}: expected 0 to 65535")
        for name in ("heartbeat_s", "slow_reader_s", "idle_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"HEADRACE_FACADE_{name.upper()}: expected more than 0")
        for origin in self.origins:
            if not _ORIGIN.fullmatch(origin):
                raise ValueError(
                    f"HEADRACE_FACADE_CORS_ORIGINS: {origin!r}: expected scheme://host or scheme://host:port"
                )

    @property
    def origins(self) -> frozenset[str]:
        """The origins of `cors_origins`."""
        return frozenset(origin.strip() for origin in self.cors_origins.split(",") if origin.strip())
