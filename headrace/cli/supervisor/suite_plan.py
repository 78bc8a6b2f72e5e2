"""The processes of `headrace up`: their commands and environments."""

from __future__ import annotations

import os
import secrets
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.cli.supervisor.child_environment import ENV_FILE, PROVIDER_FILE, find_references, select_environment
from headrace.cli.supervisor.ports import CannotStart

WIRED = ("_LISTEN", "_ADDRESS", "_ADVERTISE")
"""Suffixes of the settings by which services find each other."""

REPLACEMENTS = {"HEADRACE_ORCHESTRATOR_LISTEN": "--grpc-port", "HEADRACE_MEMORY_LISTEN": "--memory-port"}

JOINED = ("facade", "orchestrator", "llm_gateway", "memory")
"""Services that may share a process; tools stays apart because it runs commands."""

REPLICATED = JOINED[:3]
"""Services in each replica; chats and workspaces each belong to a single process."""


DEFAULT_AGENT = "assistant"
"""Agent of the printed examples, if the folder has it."""


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    is_replica: bool = False
    """Whether it is one of several replicas, which stop together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuitePlan:
    config_dir: Path
    data_dir: Path
    run_dir: Path
    """Folder of the Unix sockets; its path must be short because a socket's path has at most 107 bytes."""
    http_port: int
    grpc_port: int
    memory_port: int
    simulator_port: int | None
    """Port of the simulated provider; None if there is none."""
    is_one_process: bool
    """Whether all services except tools, which runs commands, share a process."""
    replicas: int = 1
    """Number of processes that share the work; with more than one, memory runs in its own process."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def entrances(self) -> Mapping[str, int | Path]:
        """Return port or socket of each process that serves HTTP, by process name; "" if there is only one."""
        if self.replicas == 1:
            return {"": self.http_port}
        return {f"suite-{number}": self._make_http_socket(number) for number in self._numbers}

    def build_processes(self) -> list[ProcessSpec]:
        """Return the processes in the order in which to stop them: callers first."""
        shared = self._build_shared_settings()
        gateways = ",".join(self._make_address("llm_gateway", number) for number in self._numbers)
        replicas = [self._build_replica(number, shared) for number in self._numbers]
        tools = self._build_service(
            "tools",
            shared,
            LISTEN=self._make_address("tools"),
            LLM_GATEWAY_ADDRESS=gateways,
            MEMORY_ADDRESS=self._make_address("memory"),
            **self._build_web_settings(),
        )
        memory = self._build_service(
            "memory",
            shared,
            LISTEN=f"{self._make_address('memory')},127.0.0.1:{self.memory_port}",
            LLM_GATEWAY_ADDRESS=gateways,
        )
        if self.replicas > 1:
            suites = zip(self._numbers, replicas, strict=True)
            processes = [*(_join_replica(services, number) for number, services in suites), tools, memory]
        elif self.is_one_process:
            processes = [_join_services("suite", [*replicas[0], memory]), tools]
        else:
            facade, orchestrator, gateway = replicas[0]
            processes = [facade, orchestrator, tools, gateway, memory]
        if self.simulator_port is not None:
            command = (sys.executable, "-m", "services.simulator", "--port", str(self.simulator_port))
            processes.append(
                ProcessSpec("simulator", command, select_environment("simulator", os.environ, self.config_dir))
            )
        return processes

    def _build_replica(self, number: int, shared: Mapping[str, str]) -> list[ProcessSpec]:
        """Return the services of a replica, in the order of REPLICATED."""
        orchestrator, gateway = (self._make_address(name, number) for name in ("orchestrator", "llm_gateway"))
        peers = {"MEMORY_ADDRESS": self._make_address("memory"), "TOOLS_ADDRESS": self._make_address("tools")}
        facade_settings: dict[str, str] = {}
        # Sockets and ports differ from start to start, but a single orchestrator keeps this name.
        advertise = "orchestrator"
        gateway_settings: dict[str, str] = {}
        if self.replicas > 1:
            facade_settings["SOCKET"] = str(self._make_http_socket(number))
            advertise = orchestrator
            elsewhere = int(os.environ.get("HEADRACE_LLM_GATEWAY_REPLICAS", "1"))
            gateway_settings["REPLICAS"] = str(elsewhere * self.replicas)
        return [
            self._build_service(
                "facade",
                shared,
                PORT=str(self.http_port),
                ORCHESTRATOR_ADDRESS=orchestrator,
                **peers,
                **facade_settings,
            ),
            self._build_service(
                "orchestrator",
                shared,
                LISTEN=f"{orchestrator},127.0.0.1:{self.grpc_port}",
                ADVERTISE=advertise,
                LLM_GATEWAY_ADDRESS=gateway,
                **peers,
            ),
            self._build_service("llm_gateway", shared, LISTEN=gateway, **gateway_settings),
        ]

    def _build_service(self, name: str, shared: Mapping[str, str], **settings: str) -> ProcessSpec:
        own = {f"HEADRACE_{name.upper()}_{key}": value for key, value in settings.items()}
        environment = {**select_environment(name, os.environ, self.config_dir), **shared, **own}
        return ProcessSpec(name, (sys.executable, "-m", f"services.{name}"), environment)

    @property
    def _numbers(self) -> Sequence[int]:
        return range(1, self.replicas + 1)

    def _make_address(self, service: str, number: int = 1) -> str:
        name = f"{service}-{number}" if self.replicas > 1 and service in REPLICATED else service
        return f"unix:{self.run_dir}/{name}.sock"

    def _make_http_socket(self, number: int) -> Path:
        return self.run_dir / f"facade-{number}.sock"

    def _build_shared_settings(self) -> dict[str, str]:
        shared = {"HEADRACE_CONFIG_DIR": str(self.config_dir), "HEADRACE_DATA_DIR": str(self.data_dir)}
        # The token identifies services to each other; all other callers of their ports are clients.
        shared["HEADRACE_INTERNAL_TOKEN"] = os.environ.get("HEADRACE_INTERNAL_TOKEN") or secrets.token_urlsafe(32)
        if self.simulator_port is not None:
            shared["SIMULATOR_URL"] = f"http://127.0.0.1:{self.simulator_port}/v1"
        return shared

    def _build_web_settings(self) -> dict[str, str]:
        """Return the settings that let the simulator play the web; empty if a search endpoint is configured."""
        if self.simulator_port is None or os.environ.get("HEADRACE_TOOLS_SEARCH_URL"):
            return {}
        host = f"127.0.0.1:{self.simulator_port}"
        allowed = filter(None, (os.environ.get("HEADRACE_TOOLS_FETCH_ALLOW"), host))
        return {"SEARCH_URL": f"http://{host}/search", "FETCH_ALLOW": ",".join(allowed)}


def _join_services(name: str, services: Iterable[ProcessSpec]) -> ProcessSpec:
    """Return one process for all of these services."""
    environment: dict[str, str] = {"HEADRACE_TRANSPORT": "local"}
    for service in services:
        environment |= service.environment
    return ProcessSpec(name, (sys.executable, "-m", "services.suite"), environment)


def _join_replica(services: Iterable[ProcessSpec], number: int) -> ProcessSpec:
    joined = _join_services(f"suite-{number}", services)
    metrics = {
        name: place_metrics(address, number)
        for name, address in joined.environment.items()
        if name.endswith("_METRICS_LISTEN")
    }
    environment = {**joined.environment, **metrics, "HEADRACE_REUSE_PORT": "true"}
    return ProcessSpec(joined.name, (*joined.command, *REPLICATED), environment, is_replica=True)


def place_metrics(address: str, number: int) -> str:
    """Return the metrics address of replica `number`: replica 1 uses `address`, each further one the next port."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + number - 1}" if port.isdecimal() and int(port) else address


def describe_overruled_settings(processes: Iterable[ProcessSpec], env: Mapping[str, str]) -> list[str]:
    """Return a warning for each setting in `env` that the suite overrides."""
    given = {name: env[name] for name in sorted(env) if name.startswith("HEADRACE_") and name.endswith(WIRED)}
    effective: dict[str, set[str]] = {}
    for process in processes:
        for name in given.keys() & process.environment.keys():
            effective.setdefault(name, set()).add(process.environment[name])
    return [
        f"warning: {name} is not used here, because the services connect over private sockets: "
        + (f"use {REPLACEMENTS[name]}" if name in REPLACEMENTS else "start the services one by one to use it")
        for name, value in given.items()
        if value not in effective.get(name, {value})
    ]


def describe_next_steps(plan: SuitePlan, env: Mapping[str, str]) -> list[str]:
    """Return lines that say how to use a suite that is ready."""
    agents = sorted(path.stem for path in (plan.config_dir / "agents").glob("[!.]*.json"))
    agent = DEFAULT_AGENT if DEFAULT_AGENT in agents or not agents else agents[0]
    has_users = env.get("HEADRACE_AUTH", "none") != "none"
    header = ' -H "Authorization: Bearer $HEADRACE_TOKEN"' if has_users else ""
    body = f'{{"agentKey": "{agent}", "message": "Hello"}}'
    lines = [
        f"  console  {plan.url}/",
        f"  ask      headrace ask --url {plan.url} --agent {agent} Hello",
        f"  curl     curl -N {plan.url}/api/query -H 'Content-Type: application/json'{header} -d '{body}'",
        f"  files    {plan.config_dir}: changes take effect when you save them",
        "  stop     Ctrl-C",
    ]
    cores = os.cpu_count() or 1
    if plan.is_one_process and plan.replicas < cores:
        lines.append(f"  cores    {plan.replicas} of {cores} used; for more, --replicas or --split")
    if plan.simulator_port is not None:
        lines.append("  model    simulated: its answers are invented")
    names = dict.fromkeys(find_references(plan.config_dir / PROVIDER_FILE))
    if names and plan.simulator_port is None and not any(env.get(name) for name in names):
        lines.append(f"  missing  {', '.join(names)}: set in the environment or in {plan.config_dir / ENV_FILE}")
    return lines


GATEWAYS = "HEADRACE_LLM_GATEWAY_REPLICAS"


def check_replicas(plan: SuitePlan, env: Mapping[str, str]) -> None:
    """Raise CannotStart if the plan or a setting does not work with several replicas."""
    if plan.replicas == 1:
        return
    if not plan.is_one_process:
        raise CannotStart("--replicas needs --one-process: a replica is one process; with --split there is one of each")
    if env.get("HEADRACE_TRANSPORT") == "grpcio":
        raise CannotStart("--replicas needs HEADRACE_TRANSPORT=h2 or none: grpcio knows no replicas behind one address")
    if not env.get(GATEWAYS, "1").isdecimal():
        raise CannotStart(f"{GATEWAYS}: {env[GATEWAYS]!r}: expected a whole number")
    addresses = Counter(address for process in plan.build_processes() for address in _list_metrics(process))
    if taken := [address for address, count in addresses.items() if count > 1]:
        raise CannotStart(
            f"with --replicas {plan.replicas} each replica serves its metrics at the next port, and "
            f"{taken[0]} would be of two; leave {plan.replicas} ports for each HEADRACE_…_METRICS_LISTEN, or set one"
        )


def _list_metrics(process: ProcessSpec) -> list[str]:
    """Return the addresses at which the process serves metrics, without those on any free port."""
    given = (address for name, address in process.environment.items() if name.endswith("_METRICS_LISTEN"))
    return [address for address in given if address and not address.endswith(":0")]
