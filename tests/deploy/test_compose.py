"""deploy/compose.yaml documents the settings: it has every setting with its default, and no others."""

import re
import subprocess
import sys
from dataclasses import MISSING

import pytest
import yaml

from services.runtime.process.config import load_settings
from tests.deploy.settings import CONFIGS, DEPLOY, list_gateway_settings, list_settings, prefix

SOURCE = re.sub(r"\$\{\w+:-(.*?)\}", r"\1", (DEPLOY / "compose.yaml").read_text())
"""compose.yaml as read with an empty environment."""

COMPOSE = yaml.safe_load(SOURCE)
DEFAULT = re.compile(
    r'^\s+(?P<name>(?:HEADRACE|AWS)_\w+): (?P<value>"[^"]*"|\S*)[ \t]*(?:# default (?P<default>\S+))?', re.M
)


def environment(service: str) -> dict[str, str]:
    given = COMPOSE["services"][service]["environment"]
    return {name: value for name, value in given.items() if name.startswith(("HEADRACE_", "AWS_"))}


def read_stated_defaults(service: str) -> dict[str, str]:
    block = re.split(r"^  \S+:$", SOURCE.split(f"\n  {service}:\n")[1], flags=re.M)[0]
    if "<<: *credentials" in block:
        block += SOURCE.split("x-credentials: &credentials\n")[1].split("\nservices:\n")[0] + "\n"
    return {match["name"]: match["default"] or match["value"].strip('"') for match in DEFAULT.finditer(block)}


@pytest.mark.parametrize("service", CONFIGS)
def test_compose_has_every_setting_with_its_default(service: str) -> None:
    assert environment(service).keys() == list_settings(service).keys()
    assert MISSING not in list_settings(service).values()
    defaults = {name: "" if value is None else str(value) for name, value in list_settings(service).items()}
    stated = read_stated_defaults(service)
    assert {name: value.lower() for name, value in stated.items()} == {
        name: value.lower() for name, value in defaults.items()
    }


@pytest.mark.parametrize("service", CONFIGS)
def test_a_service_accepts_its_environment_of_compose(service: str) -> None:
    load_settings(CONFIGS[service], prefix(service), environment(service))


def test_compose_has_the_gateways_settings_with_their_defaults() -> None:
    assert read_stated_defaults("gateway") == list_gateway_settings()
    assert environment("gateway").keys() == list_gateway_settings().keys()


@pytest.mark.parametrize("service", [*CONFIGS, "simulator"])
def test_a_services_command_starts_the_module_of_its_name(service: str) -> None:
    program, option, module, *_ = COMPOSE["services"][service]["command"]
    assert (program, option, module) == ("python", "-m", f"services.{service.replace('-', '_')}")


def test_the_simulator_accepts_its_arguments_of_compose() -> None:
    replacements = {"python": sys.executable, "0.0.0.0": "127.0.0.1", "7005": "0"}
    command = [replacements.get(str(word), str(word)) for word in COMPOSE["services"]["simulator"]["command"]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        process.terminate()


def test_compose_has_no_password() -> None:
    database = COMPOSE["services"]["postgres"]
    assert database["profiles"] == ["postgres"], "the embedded store is the default"
    assert database["environment"]["POSTGRES_PASSWORD"] is None
