"""The processes of `headrace up`: commands and environments."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.cli.supervisor.child_environment import select_environment

WIRED = ("_LISTEN", "_ADDRESS", "_ADVERTISE")
"""Endings of the settings by which services find each other."""

REPLACEMENTS = {"HEADRACE_ORCHESTRATOR_LISTEN": "--grpc-port", "HEADRACE_MEMORY_LISTEN": "--memory-port"}


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SuitePlan:
    config_dir: Path
    data_dir: Path
    run_dir: Path
    """The sockets' folder, with a short name: a socket's path has at most 107 bytes."""
    http_port: int
    grpc_port: int
    memory_port: int
    simulator_port: int | None
    """The simulated provider's port; None without one."""
    is_one_process: bool
    """Whether all services but tools, whose commands are apart, share a process."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    def build_processes(self) -> list[ProcessSpec]:
        """Return the processes in the order to stop them in: callers first."""
        sockets = {
            name: f"unix:{self.run_dir}/{name}.sock" for name in ("orchestrator", "tools", "llm_gateway", "memory")
        }
        shared = {"HEADRACE_CONFIG_DIR": str(self.config_dir), "HEADRACE_DATA_DIR": str(self.data_dir)}
        # The services know each other by this token; all other callers of their ports are clients.
        shared["HEADRACE_INTERNAL_TOKEN"] = os.environ.get("HEADRACE_INTERNAL_TOKEN") or secrets.token_urlsafe(32)
        if self.simulator_port is not None:
            shared["SIMULATOR_URL"] = f"http://127.0.0.1:{self.simulator_port}/v1"

        def build_service(name: str, **settings: str) -> ProcessSpec:
            own = {f"HEADRACE_{name.upper()}_{key}": value for key, value in settings.items()}
            environment = select_environment(name, os.environ, self.config_dir) | shared | own
            return ProcessSpec(name, (sys.executable, "-m", f"services.{name}"), environment)

        processes = [
            build_service(
                "facade",
                PORT=str(self.http_port),
                ORCHESTRATOR_ADDRESS=sockets["orchestrator"],
                MEMORY_ADDRESS=sockets["memory"],
                TOOLS_ADDRESS=sockets["tools"],
            ),
            build_service(
                "orchestrator",
                LISTEN=f"{sockets['orchestrator']},127.0.0.1:{self.grpc_port}",
                # Sockets and ports change from start to start; the one orchestrator of this suite does not.
                ADVERTISE="orchestrator",
                LLM_GATEWAY_ADDRESS=sockets["llm_gateway"],
                MEMORY_ADDRESS=sockets["memory"],
                TOOLS_ADDRESS=sockets["tools"],
            ),
            build_service(
                "tools",
                LISTEN=sockets["tools"],
                LLM_GATEWAY_ADDRESS=sockets["llm_gateway"],
                **self._build_web_settings(),
            ),
            build_service("llm_gateway", LISTEN=sockets["llm_gateway"]),
            build_service(
                "memory",
                LISTEN=f"{sockets['memory']},127.0.0.1:{self.memory_port}",
                LLM_GATEWAY_ADDRESS=sockets["llm_gateway"],
            ),
        ]
        if self.is_one_process:
            processes = [_join_processes(processes), *(process for process in processes if process.name == "tools")]
        if self.simulator_port is not None:
            command = (sys.executable, "-m", "services.simulator", "--port", str(self.simulator_port))
            processes.append(
                ProcessSpec("simulator", command, select_environment("simulator", os.environ, self.config_dir))
            )
        return processes

    def _build_web_settings(self) -> dict[str, str]:
        """Make the simulator the web, unless a search endpoint is configured."""
        if self.simulator_port is None or os.environ.get("HEADRACE_TOOLS_SEARCH_URL"):
            return {}
        host = f"127.0.0.1:{self.simulator_port}"
        allowed = filter(None, (os.environ.get("HEADRACE_TOOLS_FETCH_ALLOW"), host))
        return {"SEARCH_URL": f"http://{host}/search", "FETCH_ALLOW": ",".join(allowed)}


def _join_processes(processes: Iterable[ProcessSpec]) -> ProcessSpec:
    """Return one process for all services but tools."""
    environment: dict[str, str] = {"HEADRACE_TRANSPORT": "local"}
    for process in processes:
        if process.name != "tools":
            environment |= process.environment
    return ProcessSpec("suite", (sys.executable, "-m", "services.suite"), environment)


def describe_overruled_settings(processes: Iterable[ProcessSpec], env: Mapping[str, str]) -> list[str]:
    """Return a warning for each setting in `env` that the suite replaces by its own."""
    given = {name: env[name] for name in sorted(env) if name.startswith("HEADRACE_") and name.endswith(WIRED)}
    effective = {name: value for process in processes for name, value in process.environment.items()}
    return [
        f"warning: {name} is not used here, where the services find each other by sockets of their own: "
        + (f"use {REPLACEMENTS[name]}" if name in REPLACEMENTS else "start the services one by one to use it")
        for name, value in given.items()
        if effective.get(name, value) != value
    ]
