"""Settings of the facade."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any

from services.facade.sign_in.settings import NO_DEFAULT_PORT, SignInSettings
from services.runtime.process.config import ProcessSettings, ServerSettings, setting

_ORIGIN = re.compile(rf"{NO_DEFAULT_PORT}[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:]+\])(:\d{{1,5}})?")
"""Format of the Origin header as browsers send it: lower case, without a path; `app:` and `chrome-extension:` too."""

ADAPTERS = frozenset({"a2a", "ag-ui", "mcp"})
"""Protocols for other programs; each is implemented in a separate folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Read from HEADRACE_FACADE_* variables; deploy/compose.yaml shows them all."""

    host: str = "127.0.0.1"
    """Address of the interface to listen on; `::` for all addresses of both families."""

    port: int = setting(8080, aliases=("SERVER_PORT",))
    """Port to listen on; 0 picks a free port, which is logged."""

    socket: str = ""
    """Path of a Unix socket to listen on as well, for example for a proxy on this machine; the folder's
    permissions decide who may connect. Empty: none.
    """

    orchestrator_address: str = "127.0.0.1:7001"
    """Address of the orchestrator: host:port, `dns:///name:port` for all replicas behind a name, or unix:/path."""

    memory_address: str = "127.0.0.1:7003"
    """Address of the memory service."""

    tools_address: str = "127.0.0.1:7004"
    """Address of the tools service."""

    heartbeat_s: float = 15.0
    """Seconds of silence after which a stream gets a comment, so that proxies keep it open."""

    slow_reader_s: float = 60.0
    """Seconds after which a client that reads nothing of its stream is disconnected; its run continues."""

    idle_s: float = 75.0
    """Seconds that a connection may take to send the head of its next request. Keep it longer than proxies keep
    idle connections (usually 60 s); otherwise a proxy may send a request into a connection that is being
    closed.
    """

    cors_origins: str = ""
    """Origins of pages that may call this facade, separated by commas: `https://app.example`, or of an app or a
    browser extension: `app://obsidian.md,chrome-extension://<id>`. Empty: none.
    """

    hosts: str = ""
    """Host names under which a facade without credentials may be reached, separated by commas:
    `facade,headrace.internal`. `localhost` and IP addresses are always allowed. `*`: any name, for networks
    without browsers.
    """

    publish: str = ""
    """Protocols that publish all agents, regardless of their files, separated by commas: `a2a,ag-ui,mcp`.
    Empty: each agent's own `publish` decides.
    """

    a2a_listen: str = ""
    """Addresses on which to serve A2A over gRPC, separated by commas: host:port (port 0: any free one) or
    unix:/path. Empty: A2A is served over HTTP only.
    """

    a2a_address: str = ""
    """Address (host:port) of A2A over gRPC in agent cards. Empty: the host of the card's own URL with the port
    of the first address in a2a_listen.
    """

    sign_in: SignInSettings = SignInSettings()
    """Settings of sign-in to the console."""

    process: ProcessSettings = ProcessSettings()
    """Settings common to all services."""

    def __post_init__(self) -> None:
        self.process.auth.check_addresses([f"{self.host}:{self.port}"], has_certificates=self.process.has_certificates)
        self.sign_in.check_auth(self.process.auth)
        if self.port > 65535:
            raise ValueError(f"HEADRACE_FACADE_PORT: {self.port}: expected 0 to 65535")
        for name in ("heartbeat_s", "slow_reader_s", "idle_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"HEADRACE_FACADE_{name.upper()}: expected more than 0")
        _ = self.a2a_server  # which checks its addresses
        if unknown := self.publishing_adapters - ADAPTERS:
            raise ValueError(f"HEADRACE_FACADE_PUBLISH: {', '.join(sorted(unknown))}: expected a2a, ag-ui or mcp")
        for origin in self.origins:
            if not _ORIGIN.fullmatch(origin):
                raise ValueError(
                    f"HEADRACE_FACADE_CORS_ORIGINS: {origin!r}: expected scheme://host or scheme://host:port, as "
                    "browsers send it: in lower case, without a path, :80 or :443"
                )

    @property
    def origins(self) -> frozenset[str]:
        """Return the origins of `cors_origins`."""
        return frozenset(origin.strip() for origin in self.cors_origins.split(",") if origin.strip())

    @property
    def a2a_server(self) -> ServerSettings | None:
        """Return the settings of A2A's gRPC server, with this process's own settings; None if it is off."""
        if not self.a2a_listen:
            return None
        # Any: one value for each field of ProcessSettings.
        shared: dict[str, Any] = {field.name: getattr(self.process, field.name) for field in fields(ProcessSettings)}
        shared |= {"metrics_listen": ""}  # the facade serves metrics itself
        return ServerSettings(listen=self.a2a_listen, **shared)

    @property
    def publishing_adapters(self) -> frozenset[str]:
        """Return the protocols of `publish`."""
        return frozenset(name.strip() for name in self.publish.split(",") if name.strip())

    @property
    def served_hosts(self) -> frozenset[str] | None:
        """Return the host names to serve; None means any name, because callers present credentials."""
        if not self.process.auth.is_none:
            return None
        return frozenset(host.strip().lower() for host in self.hosts.split(",") if host.strip())
