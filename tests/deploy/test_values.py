"""For values and names that people write, the chart renders valid objects or refuses the value by its name."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.manifests import CHART, Manifest, find_pods, list_names, needs_go, render, run_helm
from tests.deploy.schemas import list_problems, write_schemas

pytestmark = needs_go

DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())

EVERYTHING: dict[str, Any] = {
    "annotations": {"contact": "agents@example.com"},
    "labels": {"team": "agents", "app.kubernetes.io/part-of": "platform"},
    "pods": {"labels": {"team": "runs"}},
    "gateway": {"enabled": True},
    "ingress": {"enabled": True, "hosts": ["headrace.example"]},
    "httpRoute": {"enabled": True, "parentRefs": [{"name": "public"}], "hosts": ["headrace.example"]},
    "serviceMonitor": {"enabled": True, "labels": {"team": "observers"}},
    "backup": {"enabled": True, "restore": "2026-11-21T03-17-04.tar"},
}

SINGLE = {"single": {"enabled": True}}


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_schemas(tmp_path_factory.mktemp("schemas"))


SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
"""DNS-1035: Kubernetes before 1.34 refuses other names of Services."""


def render_everything(release: str = "headrace", namespace: str = "headrace", /, **values: Any) -> list[Manifest]:
    return render(json.dumps(EVERYTHING | values), release, namespace)


@pytest.mark.parametrize("release", ["12345", "007", "1e3", "0x10", "true", "no", "null", "a.b", "1-agents", "x" * 53])
def test_every_release_name_that_helm_accepts_gives_valid_objects(schemas: str, tmp_path: Path, release: str) -> None:
    for values in ({}, SINGLE):
        items = render_everything(release, release.replace(".", "-"), **values)
        assert list_problems(schemas, tmp_path, *items) == []
        services = [item["metadata"]["name"] for item in items if item["kind"] == "Service"]
        assert [name for name in services if SERVICE_NAME.fullmatch(name) is None] == []


@pytest.mark.parametrize(
    ("first", "second"),
    [("platform-production-eu-west-1-agents-blue", "platform-production-eu-west-1-agents-green"), ("a.b", "a-b")],
)
def test_no_two_releases_have_the_same_names(first: str, second: str) -> None:
    theirs, others = (list_names(render_everything(release)) for release in (first, second))
    assert theirs.isdisjoint(others)


def test_texts_that_yaml_reads_as_numbers_stay_texts(schemas: str, tmp_path: Path) -> None:
    secret = {"existingSecret": "77"}
    items = render_everything(
        image={"repository": "5", "tag": "30"},
        existingSecrets={"database": "123", "credentials": "0", "providerKeys": "1e2"},
        encryption=secret,
        bucket={"url": "s3://chats", **secret},
        memory={"tlsSecret": "5"},
        workspaces={"storageClassName": "2", "size": "100"},
        network={"monitoringNamespace": "007", "databaseNamespace": "12"},
        ingress={"enabled": True, "className": "1", "hosts": ["headrace.example"], "tlsSecret": "3"},
        backup={
            "enabled": True,
            "restore": "1.tar",
            "storageClassName": "2",
            "size": "100",
            "databaseImage": "5",
            "bucket": {"url": "s3://b", **secret},
        },
    )
    assert list_problems(schemas, tmp_path, *items) == []


def test_the_most_specific_label_wins_and_none_changes_selectors(schemas: str, tmp_path: Path) -> None:
    reserved_labels = {
        "app.kubernetes.io/name": "mine",
        "app.kubernetes.io/component": "mine",
        "app.kubernetes.io/instance": "x",
    }
    for labels in ({}, reserved_labels):
        items = render_everything(labels={"team": "agents"} | labels, pods={"labels": {"team": "runs"} | labels})
        assert list_problems(schemas, tmp_path, *items) == []
        for item in items:
            labels_of_item = item["metadata"]["labels"]
            watched = item["kind"] in ("ServiceMonitor", "PrometheusRule")
            assert (labels_of_item["team"], labels_of_item["app.kubernetes.io/name"]) == (
                "observers" if watched else "agents",
                "headrace",
            )
            for pod in find_pods(item):
                assert pod["metadata"]["labels"]["team"] == "runs"
                assert (
                    pod["metadata"]["labels"]["app.kubernetes.io/component"]
                    == labels_of_item["app.kubernetes.io/component"]
                )


def test_annotations_of_all_objects_and_labels_of_the_monitor_stay_apart() -> None:
    for item in render_everything():
        assert "team" not in item["metadata"]["annotations"], item["kind"]


def test_every_pod_gets_the_values_for_pods_and_the_single_pod_gets_all() -> None:
    pods = {"labels": {"cost": "shared"}, "annotations": {"sidecar.istio.io/inject": "false"}}
    more = {
        "envFrom": [{"configMapRef": {"name": "proxy"}}],
        "volumes": [{"name": "authority", "configMap": {"name": "authority"}}],
        "volumeMounts": [{"name": "authority", "mountPath": "/etc/authority"}],
        "egress": [{"ports": [{"port": 3128}]}],
    }
    for values in ({}, SINGLE):
        items = render_everything(pods=pods | more, **values)
        found = [pod for item in items for pod in find_pods(item)]
        assert len(found) >= 3
        for pod in found:
            assert pods["labels"].items() <= pod["metadata"]["labels"].items()
            assert pods["annotations"].items() <= pod["metadata"]["annotations"].items()
    (single,) = (item["spec"]["template"]["spec"] for item in items if item["kind"] == "StatefulSet")
    (container,) = single["containers"]
    assert container["envFrom"] == more["envFrom"]
    assert more["volumeMounts"][0] in container["volumeMounts"]
    assert more["volumes"][0] in single["volumes"]
    policies = {item["metadata"]["name"]: item["spec"] for item in items if item["kind"] == "NetworkPolicy"}
    assert more["egress"][0] in policies["headrace"]["egress"]


def test_the_single_pod_is_served_under_the_names_by_which_its_clients_come_in() -> None:
    ways = {"ingress": EVERYTHING["ingress"], "httpRoute": EVERYTHING["httpRoute"] | {"hosts": ["agents.example"]}}
    closed = {name: way | {"enabled": False} for name, way in ways.items()}
    names = ["headrace", "headrace.space", "headrace.space.svc", "headrace.space.svc.cluster.local"]
    for values, more in ((ways, ["headrace.example", "agents.example"]), (closed, []), ({}, [])):
        items = render(json.dumps(SINGLE | values), "headrace", "space")
        (pod,) = (item["spec"]["template"]["spec"] for item in items if item["kind"] == "StatefulSet")
        env = {setting["name"]: setting["value"] for setting in pod["containers"][0]["env"]}
        assert env["HEADRACE_FACADE_HOSTS"].split(",") == names + more


def list_paths(values: Any) -> list[tuple[str, ...]]:
    if not isinstance(values, dict):
        return []
    return [(name, *rest) for name, inner in values.items() for rest in [(), *list_paths(inner)]]


@pytest.mark.nightly
@pytest.mark.parametrize("name", DEFAULTS)
def test_a_null_is_rendered_as_empty_or_refused_by_name(schemas: str, tmp_path: Path, name: str) -> None:
    rendered: list[Manifest] = []
    enabled = {key: {"enabled": True} for key in ("backup", "serviceMonitor", "gateway")}
    for path in list_paths({name: DEFAULTS[name]}):
        values: Any = copy.deepcopy(enabled | ({"single": {"enabled": True}} if name == "single" else {}))
        parent = values
        for part in path[:-1]:
            parent = parent.setdefault(part, {})
        parent[path[-1]] = None
        process = run_helm("template", "headrace", str(CHART), values=json.dumps(values))
        if process.returncode == 0:
            rendered += [item for item in yaml.load_all(process.stdout, yaml.CSafeLoader) if item]
        else:
            assert f"'{path[-1]}'" in process.stderr, (path, process.stderr)
            assert "schema" in process.stderr, (path, process.stderr)
    assert list_problems(schemas, tmp_path, *rendered) == []


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ("ingress: {enabled: true}", "/ingress/hosts"),
        ("httpRoute: {enabled: true}", "/httpRoute/parentRefs"),
        ("fullnameOverride: 1st", "/fullnameOverride"),
        ("facade: {replicas: {min: 20}}", "facade.replicas"),
    ],
)
def test_values_that_kubernetes_would_refuse_are_refused_by_the_chart(values: str, named: str) -> None:
    process = run_helm("template", "headrace", str(CHART), values=values)
    assert (process.returncode, named in process.stderr) == (1, True), process.stderr


def test_a_parent_chart_may_set_enabled() -> None:
    assert render("enabled: true")


def test_empty_lists_and_a_pre_stop_of_zero_are_accepted(schemas: str, tmp_path: Path) -> None:
    items = render_everything(pods={"topologySpreadConstraints": []}, preStopSeconds=0)
    assert list_problems(schemas, tmp_path, *items) == []
    assert "lifecycle" not in str(items), "a sleep of 0 s is refused before Kubernetes 1.33"
