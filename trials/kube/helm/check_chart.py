"""Helm renders the chart to the same objects as kustomize builds from the overlay: by default, and with each
component.
"""

from __future__ import annotations

import operator
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.manifests import BUILD_TIMEOUT_S, ROOT, Manifest, build_overlay, needs_go

pytestmark = needs_go

CHART = ROOT / "deploy" / "helm" / "headrace"
HELM = Path(__file__).parent
"""Folder of the Go module that names the version."""


DATABASE = {"name": "pg", "key": "url"}


def run_helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["go", "tool", "helm", *arguments]
    return subprocess.run(command, cwd=HELM, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)


def render(namespace: str = "headrace", **values: Any) -> dict[tuple[str, str], Manifest]:
    settings = [f"--set-json={name}={value}" for name, value in values.items()]
    done = run_helm("template", "headrace", str(CHART), "--namespace", namespace, "--kube-version", "1.34.0", *settings)
    assert done.returncode == 0, done.stderr
    return by_name(item for item in yaml.safe_load_all(done.stdout) if item)


def by_name(items: Any) -> dict[tuple[str, str], Manifest]:
    return {(item["kind"], item["metadata"]["name"]): item for item in items if item["kind"] != "Namespace"}


def build(*components: str, namespace: str = "headrace") -> dict[tuple[str, str], Manifest]:
    overlay = {
        "kind": "Kustomization",
        "namespace": namespace,
        "resources": ["headrace/deploy/kubernetes/overlays/prod"],
        "components": [f"headrace/deploy/kubernetes/components/{name}" for name in components],
    }
    return by_name(build_overlay(yaml.safe_dump(overlay)))


def test_by_default_the_chart_is_the_overlay() -> None:
    assert render() == build()


def test_its_namespace_is_the_releases() -> None:
    assert render("second") == build(namespace="second")


@pytest.mark.parametrize("components", [("jwt",), ("traces",), ("gvisor",), ("backup",), ("jwt", "gvisor", "traces")])
def test_a_component_is_a_value(components: tuple[str, ...]) -> None:
    rendered, built = render(**{f"{name}.enabled": "true" for name in components}), build(*components)
    for objects in (rendered, built):
        for item in objects.values():
            sort_variables(item)
    assert rendered == built


def sort_variables(item: Manifest) -> None:
    """Sort variables, which may be in any order unless one refers to another."""
    if item["kind"] in ("Deployment", "StatefulSet"):
        for container in item["spec"]["template"]["spec"]["containers"]:
            container["env"].sort(key=operator.itemgetter("name"))


def test_values_are_where_they_belong() -> None:
    rendered = render(
        **{
            "autoscaling.enabled": "false",
            "facade.replicas.min": "4",
            "memory.replicas.min": "5",
            "memory.env": '[{"name":"HEADRACE_MEMORY_RETENTION_DAYS","value":"30"}]',
            "image": '{"repository":"images.example/headrace","digest":"sha256:12"}',
            "imagePullSecrets": '[{"name":"pull"}]',
            "secrets.database": '"pg"',
            "workspaces": '{"storageClassName":"shared","size":"5Gi"}',
            "network.enabled": "false",
        }
    )
    assert {kind for kind, _ in rendered}.isdisjoint({"HorizontalPodAutoscaler", "NetworkPolicy"})
    assert rendered["Deployment", "facade"]["spec"]["replicas"] == 4
    memory = rendered["Deployment", "memory"]["spec"]
    assert memory["replicas"] == 5
    pod = memory["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    for container in [*pod["initContainers"], *pod["containers"]]:
        assert container["image"] == "images.example/headrace@sha256:12"
        assert {"name": "HEADRACE_DATABASE_URL", "valueFrom": {"secretKeyRef": DATABASE}} in container["env"]
    assert pod["containers"][0]["env"][-1] == {"name": "HEADRACE_MEMORY_RETENTION_DAYS", "value": "30"}
    claim = rendered["PersistentVolumeClaim", "workspaces"]["spec"]
    assert (claim["storageClassName"], claim["resources"]["requests"]["storage"]) == ("shared", "5Gi")


def test_a_value_that_there_is_not_is_refused_by_name() -> None:
    done = run_helm("template", "headrace", str(CHART), "--set", "memory.replica=3")
    assert done.returncode != 0
    assert "replica" in done.stderr
    assert "memory" in done.stderr


def test_the_chart_has_no_fault_that_helm_knows() -> None:
    done = run_helm("lint", "--strict", str(CHART), "--kube-version", "1.34.0")
    assert done.returncode == 0, done.stdout
