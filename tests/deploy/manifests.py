"""The objects that the chart renders, and queries about them for tests."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml

Manifest: TypeAlias = dict[str, Any]

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "headrace"
VALUES = Path(__file__).parent / "values"
TOOLS = Path(__file__).parent / "helm"
"""A Go module that names the versions of Helm and kubeconform."""

FILES = sorted(file.stem for file in VALUES.glob("*.yaml"))

VARIANTS = (*FILES, "documented")
"""Value files, and the values that docs/operating/install.md shows."""

KUBERNETES = "1.34.0"

BUILD_TIMEOUT_S = 1200.0
"""Long enough to compile a tool for the first time."""

needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="NOTICE: Go is not installed: no manifest is built")

RESTRICTED = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
"""The security context of each container."""


@cache
def compile_tool(package: str) -> str:
    """Return the program, from Go's cache if it has been compiled before."""
    command = ["go", "tool", "-n", package]
    done = subprocess.run(command, cwd=TOOLS, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=True)
    return done.stdout.strip()


def run_helm(*arguments: str, values: str = "") -> subprocess.CompletedProcess[str]:
    command = [compile_tool("helm.sh/helm/v3/cmd/helm"), *arguments, "--kube-version", KUBERNETES, "--values", "-"]
    return subprocess.run(command, input=values, capture_output=True, text=True, timeout=60, check=False)


def render(values: str, release: str = "headrace", namespace: str = "headrace", *options: str) -> list[Manifest]:
    """Render the chart with these values; return every object."""
    done = run_helm("template", release, str(CHART), "--namespace", namespace, *options, values=values)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return [item for item in yaml.load_all(done.stdout, yaml.CSafeLoader) if item]


@cache
def build_manifests(variant: str, release: str = "headrace", namespace: str = "headrace") -> list[Manifest]:
    """Return every object of the variant."""
    return render(read_values(variant), release, namespace)


def read_values(variant: str) -> str:
    if variant in FILES:
        return (VALUES / f"{variant}.yaml").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```$", (ROOT / "docs" / "operating" / "install.md").read_text(), re.M | re.S)
    (documented,) = (block for block in blocks if block.startswith("image:"))
    return documented


def of_kind(variant: str, *kinds: str) -> dict[str, Manifest]:
    """Return the objects of these kinds, by name without the common prefix."""
    prefix = "agents" if variant == "openshift" else "headrace"
    return {
        item["metadata"]["name"].removeprefix(prefix).removeprefix("-"): item
        for item in build_manifests(variant)
        if item["kind"] in kinds
    }


def workloads(variant: str) -> dict[str, Manifest]:
    """Return Deployments and StatefulSets by service; one pod with all services is `single`."""
    found = of_kind(variant, "Deployment", "StatefulSet").values()
    return {item["metadata"]["labels"]["app.kubernetes.io/component"]: item for item in found}


def pods(variant: str) -> dict[str, Manifest]:
    """Return the pod template of each workload, by service."""
    return {name: item["spec"]["template"] for name, item in workloads(variant).items()}


def containers(variant: str) -> list[Manifest]:
    return [container for pod in pods(variant).values() for container in pod["spec"]["containers"]]


def container_of(variant: str, service: str) -> Manifest:
    """Return the service's own container, without sidecars."""
    return next(item for item in containers(variant) if item["name"] == service)


def environment(container: Manifest) -> dict[str, str]:
    """Return a container's variables; values from elsewhere are examples, or field paths of the cluster."""
    return {item["name"]: item.get("value") or _example(item["valueFrom"]) for item in container.get("env", ())}


def _example(source: Manifest) -> str:
    (kind,) = source
    if kind == "fieldRef":
        return source[kind]["fieldPath"]
    return "postgresql://elsewhere.example/headrace" if source[kind]["key"] == "url" else "example"


def find_pods(item: Any) -> Iterator[Manifest]:
    """Yield the pod templates in an object."""
    for name, inner in item.items():
        if name == "template":
            yield inner
        if isinstance(inner, dict):
            yield from find_pods(inner)


def list_names(items: list[Manifest]) -> set[tuple[str, str]]:
    return {(item["kind"], item["metadata"]["name"]) for item in items}
