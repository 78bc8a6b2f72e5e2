"""What `headrace up` starts: each service's process, its environment, and the order to stop them in."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.cli.environment import inherited

WIRED = ("_LISTEN", "_ADDRESS", "_ADVERTISE")
"""How the names of settings end that say where services find each other."""

INSTEAD = {"HEADRACE_ORCHESTRATOR_LISTEN": "--grpc-port", "HEADRACE_MEMORY_LISTEN": "--memory-port"}


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """One process."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    """All of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuitePlan:
    """Where everything is."""

    config_dir: Path
    data_dir: Path
    run_dir: Path
    """For the sockets; short-lived and of a short name: a socket's path has at most 107 bytes."""
    http_port: int
    grpc_port: int
    memory_port: int
    simulator_port: int | None
    """None: no simulated provider."""

    @property
    def url(self) -> str:
        """Where the facade answers on this machine."""
        return f"http://127.0.0.1:{self.http_port}"

    def children(self) -> list[ChildSpec]:
        """Callers before those they call: the order to stop in, so that nobody loses a peer it still needs."""
        sockets = {
            name: f"unix:{self.run_dir}/{name}.sock" for name in ("orchestrator", "tools", "llm_gateway", "memory")
        }
        shared = {"HEADRACE_CONFIG_DIR": str(self.config_dir), "HEADRACE_DATA_DIR": str(self.data_dir)}
        # By it the services know each other: who else comes to their ports may do what clients may.
        shared["HEADRACE_INTERNAL_TOKEN"] = os.environ.get("HEADRACE_INTERNAL_TOKEN") or secrets.token_urlsafe(32)
        if self.simulator_port is not None:
            shared["SIMULATOR_URL"] = f"http://127.0.0.1:{self.simulator_port}/v1"

        def service(name: str, **settings: str) -> ChildSpec:
            own = {f"HEADRACE_{name.upper()}_{key}": value for key, value in settings.items()}
            environment = inherited(name, os.environ, self.config_dir) | shared | own
            return ChildSpec(name, (sys.executable, "-m", f"services.{name}"), environment)

        children = [
            service(
                "facade",
                PORT=str(self.http_port),
                ORCHESTRATOR_ADDRESS=sockets["orchestrator"],
                MEMORY_ADDRESS=sockets["memory"],
                TOOLS_ADDRESS=sockets["tools"],
            ),
            service(
                "orchestrator",
                LISTEN=f"{sockets['orchestrator']},127.0.0.1:{self.grpc_port}",
                # Sockets and ports change from start to start; the one orchestrator of this suite does not.
                ADVERTISE="orchestrator",
                LLM_GATEWAY_ADDRESS=sockets["llm_gateway"],
                MEMORY_ADDRESS=sockets["memory"],
                TOOLS_ADDRESS=sockets["tools"],
            ),
            service("tools", LISTEN=sockets["tools"], LLM_GATEWAY_ADDRESS=sockets["llm_gateway"], **self._web()),
            service("llm_gateway", LISTEN=sockets["llm_gateway"]),
            service(
                "memory",
                LISTEN=f"{sockets['memory']},127.0.0.1:{self.memory_port}",
                LLM_GATEWAY_ADDRESS=sockets["llm_gateway"],
            ),
        ]
        if self.simulator_port is not None:
            command = (sys.executable, "-m", "services.simulator", "--port", str(self.simulator_port))
            children.append(ChildSpec("simulator", command, inherited("simulator", os.environ, self.config_dir)))
        return children

    def _web(self) -> dict[str, str]:
        """The simulator is the web to search, and its pages may be read, unless a real endpoint is configured."""
        if self.simulator_port is None or os.environ.get("HEADRACE_TOOLS_SEARCH_URL"):
            return {}
        host = f"127.0.0.1:{self.simulator_port}"
        allowed = filter(None, (os.environ.get("HEADRACE_TOOLS_FETCH_ALLOW"), host))
        return {"SEARCH_URL": f"http://{host}/search", "FETCH_ALLOW": ",".join(allowed)}


def overruled(children: Iterable[ChildSpec], env: Mapping[str, str]) -> list[str]:
    """What to say of settings in `env` that `children` do not get as they are: the suite wires its services itself."""
    given = {name: env[name] for name in sorted(env) if name.startswith("HEADRACE_") and name.endswith(WIRED)}
    got = {name: value for child in children for name, value in child.environment.items()}
    return [
        f"warning: {name} is not used here, where the services find each other by sockets of their own: "
        + (f"use {INSTEAD[name]}" if name in INSTEAD else "start the services one by one to use it")
        for name, value in given.items()
        if got.get(name, value) != value
    ]
