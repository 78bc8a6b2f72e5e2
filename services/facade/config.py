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
    """Address of the interface to listen on."""

    port: int = setting(8080, aliases=("SERVER_PORT",))
    """Port to listen on; 0: any free one, which the log says."""

    orchestrator_address: str = "127.0.0.1:7001"
    """Address of the orchestrator: host:port, `dns:///name:port` for all replicas behind a name, or unix:/path."""

    memory_address: str = "127.0.0.1:7003"
    """Address of the memory service."""

    tools_address: str = "127.0.0.1:7004"
    """Address of the tools service."""

    heartbeat_s: float = 15.0
    """Seconds of silence after which a stream gets a comment, so that proxies keep it open."""

    slow_reader_s: float = 60.0
    """Seconds after which a client that takes nothing of its stream is hung up on; its run goes on."""

    idle_s: float = 75.0
    """Seconds that a connection may take to send the head of its next request. Longer than proxies keep an idle
    connection (60 s is usual), which would else send a request into one that is being closed."""

    cors_origins: str = ""
    """Origins whose pages may call this facade, separated by commas: `https://app.example`. Empty: none."""

    log_level: str = setting("INFO", name="HEADRACE_LOG_LEVEL")
    """DEBUG, INFO, WARNING or ERROR."""

    stall_s: float = setting(30.0, name="HEADRACE_STALL_S")
    """Seconds without a turn of the event loop after which the process ends itself with code 71, to be started anew;
    0: never."""

    drain_s: float = setting(10.0, name="HEADRACE_DRAIN_S")
    """Seconds that a stopping server gives running RPCs to finish; the grace period of what stops it (Docker,
    Kubernetes) must be longer."""

    transport: str = setting(transport.DEFAULT, name=transport.VARIABLE)
    """gRPC implementation of this process: `h2`, our own transport, or `grpcio`. Certificates and several replicas
    behind one address need h2."""

    tls_cert: str = setting("", name=tls.CERT)
    """File in PEM with this process's certificate, for its servers and its channels alike; read again for each
    connection. Empty: plain text."""

    tls_key: str = setting("", name=tls.KEY)
    """File in PEM with the certificate's key."""

    tls_ca: str = setting("", name=tls.CA)
    """File in PEM with the CA that signs the certificates of the suite: each end of a connection then checks the
    other's. Empty: clients show no certificate, and servers' certificates are checked against the machine's CAs."""

    auth: AuthSettings = AuthSettings()
    """Settings of credentials."""

    def __post_init__(self) -> None:
        self.auth.check_addresses([f"{self.host}:{self.port}"], has_certificates=bool(self.tls_ca))
        transport.check_transport(self.transport)
        tls.check_tls_settings(self.tls_cert, self.tls_key, self.tls_ca, self.transport)
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
