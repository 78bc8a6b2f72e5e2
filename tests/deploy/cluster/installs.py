"""overlays/dev and overlays/prod in the cluster, as docs/operating/install.md says that they are installed."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from tests.deploy.cluster.database import add_database
from tests.deploy.cluster.kube import FOLDER, HOST, apply, await_true, get, kubectl, run_cluster
from tests.deploy.manifests import KUSTOMIZE, ROOT

SERVICES = ("facade", "orchestrator", "llm-gateway", "memory", "tools")

SIMULATOR = "simulated"
"""The namespace that stands for the world outside: what the models are asked there."""

READY_S = 600

ASSISTANT = {
    "name": "Assistant",
    "description": "Answers questions about time",
    "mode": "REACT",
    "modelConfig": {"providerKey": "openai", "model": "gpt-5"},
    "toolConfig": {"backends": ["city_datetime"]},
    "react": {"systemPrompt": "You are a helpful assistant. Today is {{date}}.", "maxSteps": 12},
}

SLOW = ASSISTANT | {"name": "Slow", "modelConfig": {"providerKey": "openai", "model": "bench-200x50ms"}}
"""Ten seconds of text."""

PROVIDERS = {
    "providers": [
        {
            "key": "openai",
            "protocol": "openai",
            "baseUrl": f"http://simulator.{SIMULATOR}:7005/v1",
            "apiKeys": ["env:OPENAI_API_KEY"],
            "models": [
                {
                    "name": "gpt-5",
                    "contextWindow": 400_000,
                    "maxOutput": 128_000,
                    "capabilities": ["tools", "reasoning"],
                },
                {"name": "bench-200x50ms", "contextWindow": 131_072, "maxOutput": 1_000_000},
            ],
        }
    ]
}


@dataclass(frozen=True, slots=True)
class Install:
    namespace: str
    key_file: Path | None = None

    def get(self, *arguments: str) -> Any:
        return get("-n", self.namespace, *arguments)

    def kubectl(self, *arguments: str, timeout_s: float = READY_S + 60) -> str:
        return kubectl("-n", self.namespace, *arguments, timeout_s=timeout_s)

    def facade_url(self) -> str:
        return f"http://{self.get('service', 'facade')['spec']['clusterIP']}:8080"

    def pods(self, service: str) -> list[dict[str, Any]]:
        """Those that are not on their way out."""
        found = self.get("pods", "-l", f"app.kubernetes.io/name={service}")["items"]
        return [it for it in found if "deletionTimestamp" not in it["metadata"]]

    def wait_rolled_out(self, *services: str) -> None:
        for service in services or SERVICES:
            kind = "statefulset" if service == "orchestrator" else "deployment"
            self.kubectl("rollout", "status", f"{kind}/{service}", f"--timeout={READY_S}s")

    def wait_gone(self) -> None:
        """Until no pod is on its way out any more."""
        await_true(
            "draining pods are gone",
            lambda: not any("deletionTimestamp" in it["metadata"] for it in self.get("pods")["items"]),
        )

    def ask(self, message: str = "What time is it in Paris?", agent: str = "assistant") -> tuple[int, str]:
        """The status and the body of a question, in the cluster's network."""
        key = ["-H", f"Authorization: Bearer {self.key_file.read_text()}"] if self.key_file else []
        body = json.dumps({"agentKey": agent, "message": message})
        said = run_cluster(
            *("enter", "curl", "-sN", "-i", "-m", "120", f"{self.facade_url()}/api/query", *key),
            *("-H", "Content-Type: application/json", "-d", body),
        )
        return int(said.split()[1]), said


def install_dev() -> Install:
    install = Install("headrace")
    run_cluster("enter", "install", "-d", "-m", "0777", "/run/volumes/dev")
    kustomization = {"resources": ["headrace/deploy/kubernetes/overlays/dev"]}
    apply(*build(kustomization), volume("dev", "headrace", "data-suite-0", "ReadWriteOnce"))
    await_true("the pod suite-0", lambda: bool(install.pods("suite")))
    install.kubectl("wait", "--for=condition=Ready", "pod/suite-0", f"--timeout={READY_S}s")
    return install


def build(kustomization: dict[str, Any], files: dict[str, Any] | None = None, checkout: Path = ROOT) -> list[Any]:
    """The objects of an overlay beside a checkout, with files of its own."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        for name, content in (files or {}).items():
            (Path(folder) / name).write_text(json.dumps(content))
        (Path(folder) / "headrace").symlink_to(checkout)
        command = ["go", "tool", "kustomize", "build", folder]
        done = subprocess.run(command, cwd=KUSTOMIZE, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def remove_prod(install: Install) -> None:
    """At once, without what draining is for."""
    install.kubectl("delete", "deployments,statefulsets", "--all", "--wait=false")
    install.kubectl("delete", "pods", "--all", "--grace-period=1")
    kubectl("delete", "namespace", install.namespace, "--timeout=600s", timeout_s=660)
    kubectl("delete", "persistentvolume", install.namespace)


def volume(name: str, namespace: str, claim: str, mode: str) -> dict[str, Any]:
    """In the place of a storage class: a folder of the node."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "100Gi"},
            "accessModes": [mode],
            "claimRef": {"namespace": namespace, "name": claim},
            "hostPath": {"path": f"/run/volumes/{name}"},
        },
    }


def install_prod(namespace: str = "headrace", *, checkout: Path = ROOT, image_tag: str = "0.1.0") -> Install:
    """Replicas over a database, with certificates of one authority for every namespace."""
    folder = FOLDER / "prod" / namespace
    folder.mkdir(parents=True, exist_ok=True)
    key_file = folder / "key"
    if not key_file.exists():
        key_file.write_text(secrets.token_hex(32))
    install = Install(namespace, key_file)
    add_database(namespace)
    items = prod_items(namespace, checkout, image_tag)
    apply(*(it for it in items if it["kind"] == "Namespace"))
    apply(*_secrets(namespace, key_file), *_certificates(namespace, checkout))
    run_cluster("enter", "install", "-d", "-m", "0777", f"/run/volumes/{namespace}")
    apply(*items, volume(namespace, namespace, "workspaces", "ReadWriteMany"))
    install.wait_rolled_out()
    return install


def prod_items(namespace: str, checkout: Path, image_tag: str) -> list[Any]:
    """overlays/prod, with requests that fit a small machine, and policies for what is private here."""
    generated = {"behavior": "replace", "namespace": "headrace"}  # as the overlay has it
    kustomization = {
        "namespace": namespace,
        "resources": ["headrace/deploy/kubernetes/overlays/prod"],
        "images": [{"name": "headrace", "newTag": image_tag}],
        "configMapGenerator": [
            generated | {"name": "agents", "files": ["assistant.json", "slow.json"]},
            generated | {"name": "providers", "files": ["providers.json"]},
        ],
    }
    files = {"assistant.json": ASSISTANT, "slow.json": SLOW, "providers.json": PROVIDERS}
    outside = {"ipBlock": {"cidr": f"{HOST}/32"}}, {"namespaceSelector": {"matchLabels": {"name": SIMULATOR}}}
    items = build(kustomization, files, checkout)
    for item in items:
        pod = item["spec"].get("template", {}).get("spec", {}) if item["kind"] in ("Deployment", "StatefulSet") else {}
        for container in (*pod.get("containers", []), *pod.get("initContainers", [])):
            container["resources"]["requests"]["cpu"] = "10m"
    return [
        *items,
        _egress(namespace, "own-database", "memory", outside[0], 5432),
        _egress(namespace, "own-models", "llm-gateway", outside[1], 7005),
    ]


def _egress(namespace: str, name: str, service: str, to: dict[str, Any], port: int) -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "podSelector": {"matchLabels": {"app.kubernetes.io/name": service}},
            "policyTypes": ["Egress"],
            "egress": [{"to": [to], "ports": [{"port": port}]}],
        },
    }


def _secrets(namespace: str, key_file: Path) -> list[dict[str, Any]]:
    digest = hashlib.sha256(key_file.read_bytes()).hexdigest()
    keys = {"keys": [{"sha256": digest, "tenant": "acme", "user": "ada", "scopes": ["ask", "answer", "operate"]}]}
    return [
        secret(namespace, "database", {"url": database_url(namespace).encode()}),
        secret(namespace, "provider-keys", {"OPENAI_API_KEY": b"sk-simulated"}),
        secret(namespace, "credentials", {"api-keys.json": json.dumps(keys).encode()}),
    ]


def _certificates(namespace: str, checkout: Path) -> list[dict[str, Any]]:
    """Issued anew by the one authority."""
    folder, authority = FOLDER / "prod" / namespace / "certificates", FOLDER / "prod" / "ca"
    shutil.rmtree(folder, ignore_errors=True)
    if authority.exists():
        shutil.copytree(authority, folder / "ca")
    command = [checkout / "deploy" / "certificates", folder]
    subprocess.run(command, env=os.environ | {"NAMESPACE": namespace}, check=True, capture_output=True)
    if not authority.exists():
        shutil.copytree(folder / "ca", authority)
    return [
        secret(namespace, f"{service}-tls", {it.name: it.read_bytes() for it in (folder / service).iterdir()})
        for service in SERVICES
    ]


def secret(namespace: str, name: str, files: dict[str, bytes]) -> dict[str, Any]:
    data = {key: base64.b64encode(value).decode() for key, value in files.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}, "data": data}


def database_url(namespace: str) -> str:
    return f"postgresql://headrace@{HOST}/{namespace}"
