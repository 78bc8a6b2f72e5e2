"""Settings: one frozen dataclass for each service, read from the environment once.

The field `idle_ms` of the memory service is HEADRACE_MEMORY_IDLE_MS; `setting(name=…)` gives a shared name, `aliases`
gives older ones. All problems, including unknown variables with our prefix, are reported together. Limits ending in
`_max` are 1 or more.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from services.runtime.auth.settings import AuthSettings
from services.runtime.calls.addresses import LOCAL
from services.runtime.process.transport import CA, CERT, DEFAULT, KEY, VARIABLE, check_tls_settings, check_transport

T = TypeVar("T")

PREFIX = "HEADRACE_"
SERVICES = ("FACADE", "ORCHESTRATOR", "LLM_GATEWAY", "MEMORY", "TOOLS", "SIMULATOR", "GATEWAY")
"""Names of services in variables; GATEWAY (deploy/gateway) reads its own."""

SHARED = frozenset(
    PREFIX + name
    for name in (
        "DATA_DIR",
        "DATABASE_URL",
        "CONFIG_DIR",
        "LOG_LEVEL",
        "DRAIN_S",
        "STALL_S",
        "ALLOW_UNSANDBOXED",
        "URL",
        "TRANSPORT",
        "TLS_CERT",
        "TLS_KEY",
        "TLS_CA",
        "CONNECTION_AGE_S",
        "REUSE_PORT",
        "TOKEN",
    )
)
"""Variables without a service's name; the command line uses URL and TOKEN."""

PLAIN = "plain:"
"""Prefix of a listen address for probes."""

TRUE, FALSE = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})


class ConfigError(Exception):
    """The environment is invalid; the text has one problem per line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """Settings of every service's process."""

    log_level: str = field(default="INFO", metadata={"name": "HEADRACE_LOG_LEVEL"})
    """DEBUG, INFO, WARNING or ERROR."""

    stall_s: float = field(default=30.0, metadata={"name": "HEADRACE_STALL_S"})
    """How long the event loop may stand still, in seconds, before the process is killed and restarted; 0: unlimited."""

    drain_s: float = field(default=10.0, metadata={"name": "HEADRACE_DRAIN_S"})
    """How long, in seconds, a stopping server lets running RPCs finish; the grace period of its supervisor (Docker,
    Kubernetes) must be longer."""

    transport: str = field(default=DEFAULT, metadata={"name": VARIABLE})
    """gRPC implementation of this process: `h2`, our own transport; `local`, which uses h2 to other processes and
    memory to servers of the same process, and accepts addresses of the form `local:name`, without a socket; or
    `grpcio`, for comparison, which supports neither certificates nor several replicas at one address."""

    tls_cert: str = field(default="", metadata={"name": CERT})
    """PEM file with this process's certificate, for its servers and its channels; read again for each connection.
    Empty: plain text."""

    tls_key: str = field(default="", metadata={"name": KEY})
    """PEM file with the certificate's key."""

    tls_ca: str = field(default="", metadata={"name": CA})
    """PEM file with the CA that signs the certificates of the suite: both ends of a connection then check each other's.
    Empty: clients present no certificate, and servers' certificates are checked against the machine's CAs."""

    auth: AuthSettings = AuthSettings()
    """Settings of clients' credentials."""

    reuse_port: bool = field(default=False, metadata={"name": "HEADRACE_REUSE_PORT"})
    """Whether other processes of this user may listen at the same ports: the kernel spreads connections over them.
    `headrace up --replicas` sets it for its replicas."""

    metrics_listen: str = ""
    """host:port at which GET /metrics answers Prometheus, in plain text; empty: not served."""

    def __post_init__(self) -> None:
        check_transport(self.transport)
        check_tls_settings(self.tls_cert, self.tls_key, self.tls_ca, self.transport)
        if self.metrics_listen and not _is_host_and_port(self.metrics_listen):
            raise ValueError(f"metrics address {self.metrics_listen!r}: expected host:port")

    @property
    def has_certificates(self) -> bool:
        """Whether both ends of the suite's connections present certificates."""
        return bool(self.tls_ca)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings(ProcessSettings):
    """Settings of a service that serves gRPC."""

    listen: str
    """Addresses to listen on, separated by commas: host:port (port 0: any free one) or unix:/path. The first one is
    announced to other services. An address with the prefix `plain:` answers only health checks, without TLS, for
    probes; it cannot be the first."""

    streams_max: int = 2000
    """Maximum concurrent streaming RPCs; the next one is refused with OVERLOADED at once. With credentials, a tenant
    may have as many as it leaves free."""

    connection_age_s: float = field(default=0.0, metadata={"name": "HEADRACE_CONNECTION_AGE_S"})
    """Age in seconds at which a client's connection is closed in good order, so that the client finds new replicas and
    renewed certificates take effect; 0: never."""

    def __post_init__(self) -> None:
        ProcessSettings.__post_init__(self)  # without arguments, super() would use the class before slots were added
        # gRPC reads port 99999 as 34463, and a name without a port as port 443.
        for address in self.addresses:
            where = address.removeprefix(PLAIN)
            is_name = self.transport == "local" and where.startswith(LOCAL) and where != LOCAL
            if not (where.startswith("unix:/") or is_name or _is_host_and_port(where)):
                raise ValueError(f"listen address {address!r}: expected host:port or unix:/path")
        if self.listen.startswith(PLAIN):
            raise ValueError(
                f"listen address {self.addresses[0]!r}: the first one is for all calls, not for probes alone"
            )
        calls = (address for address in self.addresses if not address.startswith(PLAIN))
        self.auth.check_addresses(calls, has_certificates=self.has_certificates)

    @property
    def addresses(self) -> list[str]:
        return [address.strip() for address in self.listen.split(",")]


def _is_host_and_port(address: str) -> bool:
    host, _, port = address.rpartition(":")
    return bool(host) and port.isdecimal() and int(port) <= 65535


def setting(default: Any = MISSING, *, name: str = "", aliases: tuple[str, ...] = (), secret: bool = False) -> Any:
    metadata = {"name": name, "aliases": aliases, "secret": secret}
    return field(default=default, metadata=metadata, repr=not secret)


def load_settings(cls: type[T], service: str, env: Mapping[str, str]) -> T:
    """Read the settings of `service` ("MEMORY"); raises ConfigError with all problems."""
    problems: list[str] = []
    known: set[str] = set()
    config = _load_fields(cls, service, env, problems, known)
    problems += _find_unknown(service, env, known)
    if problems or config is None:
        raise ConfigError("\n".join(problems))
    return config


def list_variables(cls: type[Any], service: str) -> dict[str, Any]:
    """Return each variable of `cls` with its default."""
    found: dict[str, Any] = {}
    hints = typing.get_type_hints(cls)
    for item in fields(cls):
        if dataclasses.is_dataclass(hints[item.name]):
            found |= list_variables(typing.cast("type[Any]", hints[item.name]), service)
            if isinstance(item.default, ServerSettings):
                found |= {PREFIX + service + "_LISTEN": item.default.listen}
        else:
            found[_list_names(item, service)[0]] = item.default
    return found


def describe_settings(config: Any) -> dict[str, Any]:
    """Return the values for the log, secrets masked."""
    shown: dict[str, Any] = {}
    for item in fields(config):
        value = getattr(config, item.name)
        if dataclasses.is_dataclass(value):
            shown |= describe_settings(value)
        else:
            plain = str(value) if isinstance(value, Path) else value
            shown[item.name] = "***" if item.metadata.get("secret") and value else plain
    return shown


def name_variable(item: dataclasses.Field[Any], service: str) -> str:
    """Return the variable of a setting of `service` ("MEMORY")."""
    return item.metadata.get("name") or f"{PREFIX}{service}_{item.name.upper()}"


def _list_names(item: dataclasses.Field[Any], service: str) -> tuple[str, ...]:
    return (name_variable(item, service), *item.metadata.get("aliases", ()))


def _load_fields(cls: type[T], service: str, env: Mapping[str, str], problems: list[str], known: set[str]) -> T | None:
    values: dict[str, Any] = {}
    hints = typing.get_type_hints(cls)
    for item in fields(typing.cast("Any", cls)):
        kind = hints[item.name]
        if dataclasses.is_dataclass(kind):
            inner = env
            if isinstance(item.default, ServerSettings):  # they listen at their default address
                inner = {f"{PREFIX}{service}_LISTEN": item.default.listen, **env}
            values[item.name] = _load_fields(typing.cast("type[Any]", kind), service, inner, problems, known)
            continue
        names = _list_names(item, service)
        known.update(names)
        name = next((name for name in names if name in env), None)
        if name is None:
            if item.default is MISSING:
                problems.append(f"{names[0]}: not set, and it has no default")
            else:
                values[item.name] = item.default
            continue
        try:
            values[item.name] = _parse_value(env[name].strip(), kind)  # a secret is often a line with its end
            if item.name.endswith("_max") and values[item.name] is not None and values[item.name] < 1:
                raise ValueError("expected 1 or more")
        except ValueError as error:
            problems.append(f"{name}: {env[name]!r}: {error}")
    if problems:
        return None
    try:
        return cls(**values)
    except ValueError as error:  # problems that the class itself finds in __post_init__
        problems.append(str(error))
        return None


def _parse_value(text: str, kind: Any) -> Any:
    """Parse a str, int, float, bool, Path, or an optional one; empty text is None."""
    if isinstance(kind, types.UnionType):
        if not text:
            return None
        kind = next(option for option in typing.get_args(kind) if option is not type(None))
    if kind is bool:
        if text.lower() not in TRUE | FALSE:
            raise ValueError("expected true or false")
        return text.lower() in TRUE
    if kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            raise ValueError(f"expected {'a whole number' if kind is int else 'a number'}") from None
        if not 0 <= number < float("inf"):
            raise ValueError("expected a number that is not negative")
        return number
    return kind(text)


def _find_unknown(service: str, env: Mapping[str, str], known: set[str]) -> list[str]:
    own = PREFIX + service + "_"
    others = tuple(f"{PREFIX}{name}_" for name in SERVICES if name != service)
    return [
        f"{name}: no such setting"
        for name in sorted(env)
        if name.startswith(PREFIX)
        and name not in known | SHARED
        and (name.startswith(own) or not name.startswith(others))
    ]
