"""The Kubernetes manifests as kustomize builds them, and what a test wants to know of them."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import pytest
import yaml

Manifest: TypeAlias = dict[str, Any]

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
KUSTOMIZE = Path(__file__).parent / "kustomize"
"""A Go module of its own, which names the version."""

VARIANTS = ("dev", "prod", "own", "second")
"""The overlays, the one that docs/operating/install.md shows as one's own, and prod in a namespace of another name."""

SECOND = {"kind": "Kustomization", "namespace": "second", "resources": ["headrace/deploy/kubernetes/overlays/prod"]}

BUILD_TIMEOUT_S = 1200.0
"""kustomize is compiled where it never was."""

needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="NOTICE: Go is not installed: no manifest is built")


RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
"""The security context of each container."""


@cache
def build_manifests(variant: str) -> list[Manifest]:
    """Every object of the variant."""
    if variant in ("dev", "prod"):
        return _built(KUBERNETES / "overlays" / variant)
    blocks = re.findall(r"^```yaml\n(.*?)^```$", (ROOT / "docs" / "operating" / "install.md").read_text(), re.M | re.S)
    (own,) = (block for block in blocks if "kind: Kustomization" in block)
    return build_overlay(own if variant == "own" else yaml.safe_dump(SECOND))


def build_overlay(source: str) -> list[Manifest]:
    """Build an overlay that has this checkout as `headrace` beside it."""
    with TemporaryDirectory() as folder:
        return _built(_write_overlay(Path(folder), source))


def _write_overlay(folder: Path, source: str) -> Path:
    """An overlay beside a checkout, and an agent file of its own."""
    (folder / "kustomization.yaml").write_text(source)
    (folder / "headrace").symlink_to(ROOT)
    shutil.copytree(KUBERNETES / "overlays" / "prod" / "config" / "agents", folder / "agents")
    return folder


def _built(path: Path) -> list[Manifest]:
    command = ["go", "tool", "kustomize", "build", str(path)]
    done = subprocess.run(command, cwd=KUSTOMIZE, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
    # Where it never was, go says what it downloads.
    complaints = [line for line in done.stderr.splitlines() if not line.startswith("go: downloading ")]
    assert (done.returncode, complaints) == (0, []), complaints
    return list(yaml.safe_load_all(done.stdout))


def of_kind(variant: str, *kinds: str) -> dict[str, Manifest]:
    """The objects of these kinds by name."""
    return {item["metadata"]["name"]: item for item in build_manifests(variant) if item["kind"] in kinds}


def workloads(variant: str) -> dict[str, Manifest]:
    return of_kind(variant, "Deployment", "StatefulSet")


def pods(variant: str) -> dict[str, Manifest]:
    """The pod template of each workload, by the workload's name."""
    return {name: item["spec"]["template"] for name, item in workloads(variant).items()}


def containers(variant: str) -> list[Manifest]:
    return [container for pod in pods(variant).values() for container in pod["spec"]["containers"]]


def environment(container: Manifest) -> dict[str, str]:
    """Its variables; those that are taken from elsewhere with an example, as `$(NAME)` what the cluster knows."""
    return {item["name"]: item.get("value") or _example(item["valueFrom"]) for item in container.get("env", ())}


def _example(source: Manifest) -> str:
    (kind,) = source
    if kind == "fieldRef":
        return source[kind]["fieldPath"]
    if kind == "configMapKeyRef":
        return "https://issuer.example/"
    if source[kind]["name"] == "blob-bucket":
        return {"url": "s3://chats/headrace", "endpoint": "https://storage.example"}.get(source[kind]["key"], "example")
    return "postgresql://elsewhere.example/headrace"
