"""Every setting in the manifests is one that the code has, and what it is set to is taken."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import structlog

from services.llm_gateway.providers.provider_file import Providers
from services.orchestrator.agents.registry import Registry
from services.runtime.process.config import load_settings
from tests.deploy.manifests import KUBERNETES, VARIANTS, Manifest, containers, environment, needs_go, of_kind
from tests.deploy.settings import CONFIGS, NOT_GIVEN, PORTS, list_gateway_settings, list_settings, prefix
from tests.support.catalogue import read_catalogue

pytestmark = needs_go

CONFIG = KUBERNETES / "overlays" / "prod" / "config"


def ours(container: Manifest) -> dict[str, str]:
    return {name: value for name, value in environment(container).items() if name.startswith(("HEADRACE_", "AWS_"))}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_setting_exists_and_takes_its_value(variant: str) -> None:
    for container in containers(variant):
        if container["name"] == "simulator":
            assert ours(container) == {}
        elif container["args"] == ["headrace-gateway"]:
            assert ours(container).keys() <= list_gateway_settings().keys()
        else:
            service = container["name"]
            assert container["args"] == ["python", "-m", f"services.{service.replace('-', '_')}"]
            assert ours(container).keys() <= list_settings(service).keys(), service
            load_settings(CONFIGS[service], prefix(service), ours(container))


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_variable_is_given_twice(variant: str) -> None:
    for container in containers(variant):
        assert len(container.get("env", ())) == len(environment(container))


NO_SERVICES = {"HEADRACE_GATEWAY_FACADE_ADDRESS", "HEADRACE_FACADE_A2A_ADDRESS"} | NOT_GIVEN
"""Addresses of no Service: the facade's in the gateway's own pod, and A2A over gRPC, which a facade says of itself."""


@pytest.mark.parametrize("variant", ["prod", "own"])
def test_each_service_is_told_of_all_that_it_calls_where_they_are(variant: str) -> None:
    services = of_kind(variant, "Service")
    for container in containers(variant):
        settings = (
            list_gateway_settings() if container["args"] == ["headrace-gateway"] else list_settings(container["name"])
        )
        expected = {name for name in settings if re.fullmatch(r"HEADRACE_\w+_ADDRESS", name)} - NO_SERVICES
        given = {name: value for name, value in ours(container).items() if name.endswith("_ADDRESS")}
        assert given.pop("HEADRACE_GATEWAY_FACADE_ADDRESS", "127.0.0.1:8081") == "127.0.0.1:8081"
        assert given.keys() == expected, container["name"]
        for name, address in given.items():
            scheme, host, port = re.split(r"(?<=///)|:(?=\d)", address)
            # By each name gRPC gets the addresses of all ready pods, and takes turns.
            assert (scheme, services[host]["spec"]["clusterIP"]) == ("dns:///", "None"), name
            assert name.endswith(f"{prefix(host)}_ADDRESS")
            assert (int(port), [item["port"] for item in services[host]["spec"]["ports"]]) == (PORTS[host], [int(port)])


def test_an_orchestrator_advertises_a_name_that_stays_and_is_found_while_it_drains() -> None:
    (container,) = (item for item in containers("prod") if item["name"] == "orchestrator")
    host, _, port = ours(container)["HEADRACE_ORCHESTRATOR_ADVERTISE"].partition(":")
    pod, service, *domain = host.split(".")
    # With the namespace, because a certificate for all pods of a name has two dots behind its star.
    assert (pod, domain) == ("$(POD_NAME)", ["$(NAMESPACE)", "svc"])
    # A variable is put into those that come after it only.
    names = list(environment(container))
    assert {"POD_NAME", "NAMESPACE"} <= set(names[: names.index("HEADRACE_ORCHESTRATOR_ADVERTISE")])
    workload, headless = of_kind("prod", "StatefulSet")["orchestrator"], of_kind("prod", "Service")[service]
    assert workload["spec"]["serviceName"] == service
    assert headless["spec"]["publishNotReadyAddresses"]
    assert int(port) == PORTS["orchestrator"]


def test_clients_that_keep_their_connections_find_new_pods_within_minutes() -> None:
    # Ours look for themselves; others ask for a name's addresses when they must connect anew.
    ages = {item["name"]: float(ours(item).get("HEADRACE_CONNECTION_AGE_S", "0")) for item in containers("prod")}
    assert {name for name, age_s in ages.items() if 0 < age_s <= 600} == CONFIGS.keys() - {"facade"}


def test_the_configuration_files_are_taken(tmp_path: Path) -> None:
    registry = Registry(mounted("agents", tmp_path))
    registry.reload()
    agent = registry.get("assistant")
    assert agent.tool_config is not None
    assert agent.model_config_ is not None
    backends = set(agent.tool_config.backends or ())
    assert backends
    with structlog.testing.capture_logs() as logged:
        catalogue = read_catalogue(mounted("tools", tmp_path) / "tools")
    assert [entry for entry in logged if entry["log_level"] in ("warning", "error")] == []
    assert {tool.name for tool in catalogue.list_tools() if tool.tier != "discovered"} >= backends
    file = Providers.model_validate_json((mounted("providers", tmp_path) / "providers.json").read_bytes())
    asked_for = (agent.model_config_.provider_key, agent.model_config_.model)
    assert asked_for in [(provider.key, model.name) for provider in file.providers for model in provider.models]


def mounted(name: str, tmp_path: Path) -> Path:
    """The folder `name` as the kubelet shows a ConfigMap: links into a folder that is exchanged whole."""
    target = tmp_path / name
    (target / "..2026").mkdir(parents=True)
    (target / "..data").symlink_to("..2026")
    for file in (CONFIG / name).iterdir():
        (target / "..2026" / file.name).write_bytes(file.read_bytes())
        (target / file.name).symlink_to(f"..data/{file.name}")
    return target
