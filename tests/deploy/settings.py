"""Settings as the code defines them: the programs of the image, and the variables that each of them reads."""

import re
from pathlib import Path
from typing import Any

from services.facade.config import Config as Facade
from services.llm_gateway.config import Config as LlmGateway
from services.memory.config import Config as Memory
from services.orchestrator.config import Config as Orchestrator
from services.runtime.process.config import list_variables
from services.tools.config import Config as Tools

DEPLOY = Path(__file__).parents[2] / "deploy"

CONFIGS: dict[str, type[Any]] = {
    "memory": Memory,
    "llm-gateway": LlmGateway,
    "tools": Tools,
    "orchestrator": Orchestrator,
    "facade": Facade,
}

PORTS = {"facade": 8080, "orchestrator": 7001, "llm-gateway": 7002, "memory": 7003, "tools": 7004}


def prefix(service: str) -> str:
    """Return the prefix of a service's settings, without HEADRACE_."""
    return service.replace("-", "_").upper()


def list_settings(service: str) -> dict[str, Any]:
    """Return a service's variables with their defaults."""
    return list_variables(CONFIGS[service], prefix(service))


def list_gateway_settings() -> dict[str, str]:
    """Return the variables of deploy/gateway with their defaults."""
    source = (DEPLOY / "gateway" / "settings.go").read_text()
    given = source.split("given := map[string]string{")[1].split("}")[0]
    return {f"HEADRACE_{name}": value for name, value in re.findall(r'"([A-Z_]+)": "([^"]*)"', given)}


NOT_GIVEN = {"HEADRACE_LLM_GATEWAY_MEMORY_ADDRESS"}
"""Addresses that the manifests leave out: llm_gateway's refused sign-ins are in its log alone there."""


def list_calls() -> set[tuple[str, str]]:
    """Return (caller, callee) pairs, from the address settings of each service; orchestrators call each other."""
    found = {("orchestrator", "orchestrator")}
    for caller in CONFIGS:
        for callee in CONFIGS:
            if f"HEADRACE_{prefix(caller)}_{prefix(callee)}_ADDRESS" in list_settings(caller).keys() - NOT_GIVEN:
                found.add((caller, callee))
    return found
