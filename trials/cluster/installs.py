"""overlays/dev and overlays/prod, installed in the cluster as described in docs/operating/install.md."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.manifests import KUSTOMIZE, ROOT
from trials.cluster.database import add_database
from trials.cluster.issuer import AUDIENCE, ISSUER, describe_trust, issue_certificate, trust_issuer
from trials.cluster.kube import FOLDER, HOST, apply, await_true, get, kubectl, run_cluster
from trials.cluster.pages import Operator, make_folder

SERVICES = ("facade", "orchestrator", "llm-gateway", "memory", "tools")

SIMULATOR = "simulated"
"""Namespace of the outside world: the simulated models."""

READY_S = 600

SLOW = {
    "name": "Slow",
    "description": "Ten seconds of text",
    "mode": "ONESHOT",
    "modelConfig": {"providerKey": "openai", "model": "bench-200x50ms"},
    "plain": {"systemPrompt": "You take your time."},
}

TOKENS = [f"jwks-url={ISSUER}jwks.json", f"issuer={ISSUER}", f"audience={AUDIENCE}"]

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
    operator: Operator
    """The operator who installed it, with a folder."""

    @property
    def key_file(self) -> Path:
        return self.operator.folder / "key.txt"

    def get(self, *arguments: str) -> Any:
        return get("-n", self.namespace, *arguments)

    def kubectl(self, *arguments: str, timeout_s: float = READY_S + 60) -> str:
        return kubectl("-n", self.namespace, *arguments, timeout_s=timeout_s)

    def facade_url(self) -> str:
        return f"http://{self.get('service', 'facade')['spec']['clusterIP']}:8080"

    def pods(self, service: str) -> list[dict[str, Any]]:
        """Return the pods that are not being deleted."""
        found = self.get("pods", "-l", f"app.kubernetes.io/name={service}")["items"]
        return [entry for entry in found if "deletionTimestamp" not in entry["metadata"]]

    def wait_scaled(self) -> None:
        """Wait until the autoscalers have reached their minimum, because an object starts with one pod."""
        await_true(
            "the autoscalers' least",
            lambda: all(
                entry["status"].get("currentReplicas", 0) >= entry["spec"]["minReplicas"]
                for entry in self.get("horizontalpodautoscalers")["items"]
            ),
        )

    def wait_rolled_out(self, *services: str) -> None:
        for service in services or SERVICES:
            kind = "statefulset" if service == "orchestrator" else "deployment"
            self.kubectl("rollout", "status", f"{kind}/{service}", f"--timeout={READY_S}s")

    def wait_gone(self) -> None:
        """Wait until no pod is being deleted."""
        await_true(
            "draining pods are gone",
            lambda: not any("deletionTimestamp" in entry["metadata"] for entry in self.get("pods")["items"]),
        )

    def ask(
        self, message: str = "What time is it in Paris?", agent: str = "assistant", token: str = ""
    ) -> tuple[int, str]:
        """Return the status, and head and body of the answer, with ada's key or with `token`; from inside the
        cluster's network.
        """
        body = json.dumps({"agentKey": agent, "message": message})
        return self._fetch("/api/query", token, "-H", "Content-Type: application/json", "-d", body)

    def list_chats(self, most: int, token: str = "") -> tuple[int, set[str]]:
        """Return the status, and the ids of the newest chats."""
        status, said = self._fetch(f"/api/chats?pageSize={most}", token)
        if status != 200:
            return status, set()
        return status, {entry["chatId"] for entry in json.loads(said[said.index("{") :])["data"]}

    def _fetch(self, path: str, token: str, *options: str) -> tuple[int, str]:
        credential = f"Authorization: Bearer {token or self.key_file.read_text().strip()}"
        command = ("enter", "curl", "-sN", "-i", "-m", "120", f"{self.facade_url()}{path}", "-H", credential)
        said = run_cluster(*command, *options)
        return int(said.split()[1]), said

    def write_providers(self, providers: dict[str, Any]) -> None:
        (self.operator.folder / "providers.json").write_text(json.dumps(providers))


def add_volume(name: str, namespace: str, claim: str, mode: str, storage_class: str = "") -> None:
    """Create a volume from a folder of the node, in place of a storage class."""
    run_cluster("enter", "rm", "-rf", f"/run/volumes/{name}")
    run_cluster("enter", "install", "-d", "-m", "0777", f"/run/volumes/{name}")
    spec = {
        "capacity": {"storage": "500Gi"},
        "accessModes": [mode],
        "claimRef": {"namespace": namespace, "name": claim},
        "hostPath": {"path": f"/run/volumes/{name}"},
        "storageClassName": storage_class,
    }
    apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec})


def prepare_prod(
    namespace: str, checkout: Path = ROOT, words: dict[str, str] | None = None, components: tuple[str, ...] = ()
) -> Install:
    """Prepare an installation without pods: overlay, secrets, certificates, an empty database and an empty volume."""
    operator = Operator(make_folder(namespace, checkout), _words(namespace) | (words or {}))
    install = Install(namespace, operator)
    add_database(namespace)
    add_volume(namespace, namespace, "workspaces", "ReadWriteMany", "shared")
    operator.follow("install.md", "1. Write an overlay")
    install.write_providers(PROVIDERS)
    _adapt_overlay(operator.folder, namespace, components)
    (operator.folder / "database-url.txt").write_text(f"postgresql://headrace@{HOST}/{namespace}")
    (operator.folder / "provider-keys.env").write_text("OPENAI_API_KEY=sk-simulated\n")
    operator.follow("install.md", "2. Make the secrets")
    authority = FOLDER / "operators" / "ca"
    if authority.exists():
        shutil.copytree(authority, operator.folder / "certificates" / "ca")
    operator.follow("install.md", "3. Issue certificates")
    shutil.copytree(operator.folder / "certificates" / "ca", authority, dirs_exist_ok=True)
    return install


def install_prod(namespace: str = "headrace", components: tuple[str, ...] = ()) -> Install:
    """Install replicas with a database; all namespaces' certificates have the same authority."""
    install = prepare_prod(namespace, components=components)
    if "encryption" in components:  # as docs/guides/encryption.md says
        install.operator.run("head -c 32 /dev/urandom | base64 | sed 's/^/first:/' >master-keys")
        install.operator.run("kubectl -n headrace create secret generic master-keys --from-file=master-keys")
    install.operator.follow("install.md", "4. Start it")
    return install


def find_prod(namespace: str = "headrace") -> Install | None:
    """Return the installation of a kept cluster; None if there is none."""
    folder = FOLDER / "operators" / namespace
    if namespace not in {entry["metadata"]["name"] for entry in get("namespaces")["items"]} or not folder.exists():
        return None
    return Install(namespace, Operator(folder, _words(namespace)))


def remove_prod(install: Install) -> None:
    """Remove an installation immediately, without draining it."""
    install.kubectl("delete", "deployments,statefulsets", "--all", "--wait=false")
    install.kubectl("delete", "pods", "--all", "--grace-period=1")
    kubectl("delete", "namespace", install.namespace, "--timeout=600s", timeout_s=660)
    kubectl("delete", "persistentvolume", install.namespace)


def _words(namespace: str) -> dict[str, str]:
    """Return the replacements for a second installation, as in docs/operating/install.md."""
    volume = {"/volumes/workspaces": f"/run/volumes/{namespace}"}
    if namespace == "headrace":
        return volume
    return volume | {
        "-n headrace": f"-n {namespace}",
        "kubectl apply -f headrace/deploy/kubernetes/base/namespace.yaml": f"kubectl create namespace {namespace}",
        "headrace/deploy/certificates certificates": f"NAMESPACE={namespace} headrace/deploy/certificates certificates",
    }


def _adapt_overlay(folder: Path, namespace: str, components: tuple[str, ...]) -> None:
    """Add a slow agent, models in the cluster, and resource requests that fit a small machine."""
    path = folder / "kustomization.yaml"
    overlay = yaml.safe_load(path.read_text()) | {"namespace": namespace}
    overlay["resources"].append("models.yaml")
    overlay["components"] = [f"headrace/deploy/kubernetes/components/{entry}" for entry in components]
    objects = [open_models(namespace)]
    if "jwt" in components:
        overlay["configMapGenerator"].append({"name": "tokens", "namespace": "headrace", "literals": TOKENS})
        issue_certificate(folder / "issuer")
        objects += describe_trust(namespace, folder / "issuer")
        overlay["patches"] += trust_issuer()
    overlay["configMapGenerator"][0]["files"].append("agents/slow.json")
    (folder / "agents" / "slow.json").write_text(json.dumps(SLOW))
    (folder / "models.yaml").write_text(yaml.safe_dump_all(objects))
    path.write_text(yaml.safe_dump(overlay))
    overlay["patches"] += [
        _small_requests(entry) for entry in _build(folder) if entry["kind"] in ("Deployment", "StatefulSet")
    ]
    path.write_text(yaml.safe_dump(overlay, sort_keys=False))


def _small_requests(item: dict[str, Any]) -> dict[str, Any]:
    pod = item["spec"]["template"]["spec"]
    paths = [
        f"{kind}/{index}" for kind in ("containers", "initContainers") for index, _ in enumerate(pod.get(kind, []))
    ]
    changes = [
        {"op": "replace", "path": f"/spec/template/spec/{path}/resources/requests/cpu", "value": "10m"}
        for path in paths
    ]
    return {"target": {"kind": item["kind"], "name": item["metadata"]["name"]}, "patch": json.dumps(changes)}


def open_models(namespace: str) -> dict[str, Any]:
    models = {"namespaceSelector": {"matchLabels": {"name": SIMULATOR}}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "own-models", "namespace": namespace},
        "spec": {
            "podSelector": {"matchLabels": {"app.kubernetes.io/name": "llm-gateway"}},
            "policyTypes": ["Egress"],
            "egress": [{"to": [models], "ports": [{"port": 7005}]}],
        },
    }


def _build(folder: Path) -> list[dict[str, Any]]:
    command = ["go", "tool", "kustomize", "build", folder]
    done = subprocess.run(command, cwd=KUSTOMIZE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))
