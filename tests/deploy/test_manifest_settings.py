"""Every setting in the manifests exists in the code, which accepts its value, and every setting can be set."""

import re
from pathlib import Path

import pytest
import structlog
import yaml

from services.llm_gateway.providers.provider_file import Providers
from services.orchestrator.agents.registry import Registry
from services.runtime.process.config import load_settings
from tests.deploy.manifests import CHART, VARIANTS, Manifest, container_of, containers, environment, needs_go, of_kind
from tests.deploy.manifests import render as render_chart
from tests.deploy.settings import CONFIGS, NOT_GIVEN, PORTS, list_gateway_settings, list_settings, prefix
from tests.support.catalogue import read_catalogue

pytestmark = needs_go

CONFIG = yaml.safe_load((CHART / "values.yaml").read_text())["config"]

VALUES_OF = {"llm-gateway": "llmGateway"}


def own_variables(container: Manifest) -> dict[str, str]:
    return {name: value for name, value in environment(container).items() if name.startswith(("HEADRACE_", "AWS_"))}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_setting_of_the_manifests_exists_and_accepts_its_value(variant: str) -> None:
    for container in containers(variant):
        if container["args"] == ["headrace-gateway"]:
            assert own_variables(container).keys() <= list_gateway_settings().keys()
        elif container["name"] == "headrace":
            assert own_variables(container).keys() <= list_settings("facade").keys()
            load_settings(CONFIGS["facade"], "FACADE", own_variables(container))
        else:
            service = container["name"]
            assert container["args"] == ["python", "-m", f"services.{service.replace('-', '_')}"]
            assert own_variables(container).keys() <= list_settings(service).keys(), service
            load_settings(CONFIGS[service], prefix(service), own_variables(container))


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_container_sets_a_variable_twice(variant: str) -> None:
    for container in containers(variant):
        assert len(container.get("env", ())) == len(environment(container))


def test_every_setting_of_compose_can_be_set_by_values() -> None:
    """Drain times are set by `drainSeconds`, not by variables."""
    settings = {name: [*list_settings(name), "OPENAI_API_KEY"] for name in CONFIGS} | {
        "gateway": list_gateway_settings()
    }
    values = {
        VALUES_OF.get(container, container): {
            "env": [{"name": name, "value": f"{name} set"} for name in names if not name.endswith("_DRAIN_S")]
        }
        | ({"enabled": True} if container == "gateway" else {"drainSeconds": 77})
        for container, names in settings.items()
    }
    rendered = {
        container["name"]: container["env"]
        for item in render_chart(yaml.safe_dump(values))
        if item["kind"] in ("Deployment", "StatefulSet")
        for container in item["spec"]["template"]["spec"]["containers"]
    }
    assert rendered.keys() == settings.keys()
    for container, names in settings.items():
        given = [(item["name"], item.get("value")) for item in rendered[container] if item["name"] in names]
        expected = [(name, "77" if name.endswith("_DRAIN_S") else f"{name} set") for name in names]
        assert sorted(given) == sorted(expected)


def test_a_services_own_variables_are_added_to_those_for_all_pods() -> None:
    found = {item["name"]: environment(item) for item in containers("more")}
    assert {name: (env["HEADRACE_LOG_LEVEL"], env["OTEL_SDK_DISABLED"]) for name, env in found.items()} == {
        name: ("INFO" if name == "orchestrator" else "DEBUG", "true") for name in CONFIGS
    }


NO_SERVICES = {"HEADRACE_GATEWAY_FACADE_ADDRESS", "HEADRACE_FACADE_A2A_ADDRESS"} | NOT_GIVEN
"""Addresses that are no Service: the facade in the gateway's pod, and the address that a facade announces for A2A."""


@pytest.mark.parametrize("variant", ["default", "edge"])
def test_each_service_has_the_addresses_of_all_services_it_calls(variant: str) -> None:
    services = of_kind(variant, "Service")
    for container in containers(variant):
        settings = (
            list_gateway_settings() if container["args"] == ["headrace-gateway"] else list_settings(container["name"])
        )
        expected = {name for name in settings if re.fullmatch(r"HEADRACE_\w+_ADDRESS", name)} - NO_SERVICES
        given = {name: value for name, value in own_variables(container).items() if name.endswith("_ADDRESS")}
        assert given.pop("HEADRACE_GATEWAY_FACADE_ADDRESS", "127.0.0.1:8081") == "127.0.0.1:8081"
        assert given.keys() == expected, container["name"]
        for name, address in given.items():
            scheme, host, port = re.split(r"(?<=///)|:(?=\d)", address)
            spec = services[host.removeprefix("headrace-")]["spec"]
            # Each name resolves to the addresses of all ready pods, and gRPC takes turns.
            assert (scheme, spec["clusterIP"]) == ("dns:///", "None"), name
            assert name.endswith(f"{prefix(host.removeprefix('headrace-'))}_ADDRESS")
            assert int(port) == PORTS[host.removeprefix("headrace-")] == spec["ports"][0]["port"]


def test_an_orchestrator_advertises_a_stable_name_that_resolves_while_it_drains() -> None:
    container = container_of("default", "orchestrator")
    host, _, port = own_variables(container)["HEADRACE_ORCHESTRATOR_ADVERTISE"].partition(":")
    pod, service, *domain = host.split(".")
    # With the namespace, because a certificate for all pods of a name needs two dots after its star.
    assert (pod, domain) == ("$(POD_NAME)", ["headrace", "svc"])
    # A variable is expanded only in those that come after it.
    names = list(environment(container))
    assert "POD_NAME" in names[: names.index("HEADRACE_ORCHESTRATOR_ADVERTISE")]
    workload = of_kind("default", "StatefulSet")["orchestrator"]
    assert workload["spec"]["serviceName"] == service
    assert of_kind("default", "Service")[service.removeprefix("headrace-")]["spec"]["publishNotReadyAddresses"]
    assert int(port) == PORTS["orchestrator"]


def test_connections_are_limited_to_minutes_so_that_clients_find_new_pods() -> None:
    # Our clients resolve names regularly; others do so only when they must reconnect.
    ages = {
        item["name"]: float(own_variables(item).get("HEADRACE_CONNECTION_AGE_S", "0")) for item in containers("default")
    }
    assert {name for name, age_s in ages.items() if 0 < age_s <= 600} == CONFIGS.keys() - {"facade"}


def test_the_charts_configuration_files_are_accepted(tmp_path: Path) -> None:
    registry = Registry(mount_config("agents", tmp_path))
    registry.reload()
    agent = registry.get("assistant")
    assert agent.tool_config is not None
    assert agent.model_config_ is not None
    backends = set(agent.tool_config.backends or ())
    assert backends
    with structlog.testing.capture_logs() as logged:
        catalogue = read_catalogue(mount_config("tools", tmp_path) / "tools")
    assert [entry for entry in logged if entry["log_level"] in ("warning", "error")] == []
    assert {tool.name for tool in catalogue.list_tools() if tool.tier != "discovered"} >= backends
    file = Providers.model_validate_json((mount_config("providers", tmp_path) / "providers.json").read_bytes())
    asked_for = (agent.model_config_.provider_key, agent.model_config_.model)
    assert asked_for in [(provider.key, model.name) for provider in file.providers for model in provider.models]


def mount_config(name: str, tmp_path: Path) -> Path:
    """Make the folder `name` like a mount_config ConfigMap: links into a folder that is replaced as a whole."""
    target = tmp_path / name
    (target / "..2026").mkdir(parents=True)
    (target / "..data").symlink_to("..2026")
    for file, text in CONFIG[name].items():
        (target / "..2026" / file).write_text(text)
        (target / file).symlink_to(f"..data/{file}")
    return target
