"""The chart renders objects that Kubernetes accepts, with all values that a user may set."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.manifests import (
    CHART,
    VARIANTS,
    build_manifests,
    find_pods,
    list_names,
    needs_go,
    of_kind,
    pods,
    read_values,
    run_helm,
)
from tests.deploy.schemas import list_problems, write_schemas
from tests.deploy.settings import CONFIGS

pytestmark = needs_go

VERSION = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]

LABELS = ("name", "instance", "version", "component", "part-of", "managed-by")


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_schemas(tmp_path_factory.mktemp("schemas"))


def test_every_object_matches_the_published_schema(schemas: str, tmp_path: Path) -> None:
    assert len(VARIANTS) >= 10
    items = [item for variant in VARIANTS for item in build_manifests(variant)]
    assert list_problems(schemas, tmp_path, *items) == []


def test_an_unknown_field_is_found(schemas: str, tmp_path: Path) -> None:
    misspelt = json.loads(json.dumps(of_kind("default", "Deployment")["tools"]))
    misspelt["spec"]["template"]["spec"]["runtimeClass"] = "gvisor"
    assert ["runtimeClass" in problem for problem in list_problems(schemas, tmp_path, misspelt)] == [True]


@pytest.mark.parametrize("variant", VARIANTS)
def test_helm_lint_finds_no_problem(variant: str) -> None:
    process = run_helm("lint", "--strict", str(CHART), values=read_values(variant))
    assert process.returncode == 0, process.stdout


def test_each_service_has_a_workload_or_one_pod_has_all() -> None:
    assert {name: [item["name"] for item in pod["spec"]["containers"]] for name, pod in pods("default").items()} == {
        name: [name] for name in CONFIGS
    }
    assert pods("single").keys() == {"single"}


def test_a_mesh_takes_no_port_with_our_certificates_for_plain_text() -> None:
    ports = {
        name: {port["name"]: port["appProtocol"] for port in service["spec"]["ports"] if "appProtocol" in port}
        for name, service in of_kind("default", "Service").items()
    }
    assert ports.pop("facade") == {"http": "http"}
    assert {*ports} == {*CONFIGS, "orchestrator-peers"} - {"facade"}
    assert all(found == {"grpc": "https"} for found in ports.values())


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_object_and_pod_has_the_recommended_labels(variant: str) -> None:
    for item in build_manifests(variant):
        for metadata in (item["metadata"], *(pod["metadata"] for pod in find_pods(item))):
            labels = {name: metadata["labels"][f"app.kubernetes.io/{name}"] for name in LABELS}
            assert labels | {"component": ""} == {
                "name": "headrace",
                "instance": "headrace",
                "version": VERSION,
                "component": "",
                "part-of": "headrace",
                "managed-by": "Helm",
            }
        assert item["metadata"]["namespace"] == "headrace"


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_chart_refers_to_secrets_and_contains_none(variant: str) -> None:
    assert [item["metadata"]["name"] for item in build_manifests(variant) if item["kind"] == "Secret"] == []


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "openshift"])
def test_two_releases_in_a_namespace_share_nothing(variant: str) -> None:
    first, second = (build_manifests(variant, release, "shared") for release in ("blue", "green"))
    assert list_names(first).isdisjoint(list_names(second))
    labels_of_second = [pod["metadata"]["labels"] for item in second for pod in find_pods(item)]
    selectors = [selector for item in first for selector in find_selectors(item)]
    assert selectors
    for selector in selectors:
        assert not any(selector.items() <= labels.items() for labels in labels_of_second), selector
    words = " ".join(str(value) for item in first for value in find_texts(item))
    assert [name for _, name in list_names(second) if name in words] == []


def find_selectors(item: Any) -> Iterator[dict[str, str]]:
    """Labels that select pods of the same namespace: of Services, workloads, budgets, spread and policies."""
    if isinstance(item, list):
        for inner in item:
            yield from find_selectors(inner)
    elif isinstance(item, dict):
        if item.get("kind") == "Service":
            yield item["spec"]["selector"]
        elif "podSelector" in item and "namespaceSelector" not in item:
            yield item["podSelector"].get("matchLabels", {})
        for name, inner in item.items():
            if name in ("selector", "labelSelector") and inner.keys() & {"matchLabels"} and "kind" not in item:
                yield inner["matchLabels"]
            elif name != "metric":
                yield from find_selectors(inner)


def find_texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from find_texts(inner)
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ("memory: {replica: 3}", "replica"),
        ("memory: {replicas: {min: 0}}", "/memory/replicas/min"),
        ("facade: {drainSeconds: long}", "/facade/drainSeconds"),
        ("image: {digest: latest}", "/image/digest"),
        ("image: {pullPolicy: Sometimes}", "/image/pullPolicy"),
        ("existingSecrets: {providers: a}", "providers"),
        ("pods: {env: [{value: x}]}", "/pods/env/0"),
        ("tools: {env: [{name: HEADRACE_DRAIN_S, value: '3'}]}", "/tools/env/0/name"),
        ("bucket: {url: 'gs://chats'}", "/bucket/url"),
        ("workspaces: {size: huge}", "/workspaces/size"),
        ("ingress: {hosts: headrace.example}", "/ingress/hosts"),
        ("autoscaling: {enabled: 'yes'}", "/autoscaling/enabled"),
        ("pods: {tolerations: {key: a}}", "/pods/tolerations"),
        ("pods: {replicas: {min: 3}}", "/pods/replicas"),
        ("tools: {autoscaling: {perPod: 3}}", "/tools/autoscaling/perPod"),
        ("autoscaling: {cpuPercent: 50}", "/autoscaling/cpuPercent"),
        ("serviceMonitor: {interval: often}", "/serviceMonitor/interval"),
    ],
)
def test_a_wrong_value_is_refused_by_name(values: str, named: str) -> None:
    process = run_helm("template", "headrace", str(CHART), values=values)
    assert (process.returncode, named in process.stderr) == (1, True), process.stderr
