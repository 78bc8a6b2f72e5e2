"""deploy/compose.yaml is the documentation of the settings: every one stands there, with its default, and no other."""

from __future__ import annotations

import re
from dataclasses import MISSING
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.facade.config import Config as Facade
from services.llm_gateway.config import Config as LlmGateway
from services.memory.config import Config as Memory
from services.orchestrator.config import Config as Orchestrator
from services.runtime.config import load, variables
from services.tools.config import Config as Tools

DEPLOY = Path(__file__).parents[2] / "deploy"
SOURCE = (DEPLOY / "compose.yaml").read_text()
COMPOSE = yaml.safe_load(SOURCE)
CONFIGS: dict[str, type[Any]] = {
    "memory": Memory,
    "llm-gateway": LlmGateway,
    "tools": Tools,
    "orchestrator": Orchestrator,
    "facade": Facade,
}
DEFAULT = re.compile(r'^\s+(?P<name>HEADRACE_\w+): (?P<value>"[^"]*"|\S*)[ \t]*(?:# default (?P<default>\S+))?', re.M)


def environment(service: str) -> dict[str, str]:
    given = COMPOSE["services"][service]["environment"]
    return {name: value for name, value in given.items() if name.startswith("HEADRACE_")}


def stated_defaults(service: str) -> dict[str, str]:
    block = re.split(r"^  \S+:$", SOURCE.split(f"\n  {service}:\n")[1], flags=re.M)[0]
    return {match["name"]: match["default"] or match["value"].strip('"') for match in DEFAULT.finditer(block)}


@pytest.mark.parametrize("service", CONFIGS)
def test_every_setting_stands_in_compose_with_its_default(service: str) -> None:
    known = variables(CONFIGS[service], service.replace("-", "_").upper())
    assert environment(service).keys() == known.keys()
    assert MISSING not in known.values()
    defaults = {name: "" if value is None else str(value) for name, value in known.items()}
    stated = stated_defaults(service)
    assert {name: value.lower() for name, value in stated.items()} == {
        name: value.lower() for name, value in defaults.items()
    }


@pytest.mark.parametrize("service", CONFIGS)
def test_a_service_takes_its_environment_from_compose(service: str) -> None:
    load(CONFIGS[service], service.replace("-", "_").upper(), environment(service))


def test_the_gateways_settings_stand_in_compose_with_their_defaults() -> None:
    source = (DEPLOY / "gateway" / "settings.go").read_text()
    given = source.split("given := map[string]string{")[1].split("}")[0]
    known = {f"HEADRACE_GATEWAY_{name}": value for name, value in re.findall(r'"([A-Z_]+)": "([^"]*)"', given)}
    assert stated_defaults("gateway") == known
    assert environment("gateway").keys() == known.keys()


def test_the_image_is_built_from_files_that_exist() -> None:
    assert (DEPLOY / COMPOSE["services"]["memory"]["build"]["context"]).resolve() == DEPLOY.parent
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY") and "--from" not in line]
    for source in (source for sources in copied for source in sources):
        assert (DEPLOY.parent / source).exists(), source
    assert "USER 10001" in lines
