"""The chart, installed in the cluster as described in docs/operating/install.md."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.deploy.manifests import ROOT
from trials.cluster.database import add_database
from trials.cluster.issuer import issue_certificate, trust_issuer
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


SMALL = {"resources": {"requests": {"cpu": "10m"}}}

VALUES_OF = ("facade", "orchestrator", "llmGateway", "memory", "tools")

OPEN_MODELS = {"to": [{"namespaceSelector": {"matchLabels": {"name": SIMULATOR}}}], "ports": [{"port": 7005}]}

UPGRADE = "helm upgrade --install headrace headrace/deploy/helm/headrace --namespace headrace --values ours.yaml"
"""The command of the pages, which an installation in another namespace takes with its own names."""


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
        return f"http://{self.get('service', 'headrace-facade')['spec']['clusterIP']}:8080"

    def pods(self, service: str) -> list[dict[str, Any]]:
        """Return the pods that are not being deleted."""
        found = self.get("pods", "-l", f"app.kubernetes.io/component={service}")["items"]
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
            self.kubectl("rollout", "status", f"{kind}/headrace-{service}", f"--timeout={READY_S}s")

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
        status, body = self._fetch(f"/api/chats?pageSize={most}", token)
        if status != 200:
            return status, set()
        return status, {entry["chatId"] for entry in json.loads(body[body.index("{") :])["data"]}

    def _fetch(self, path: str, token: str, *options: str) -> tuple[int, str]:
        credential = f"Authorization: Bearer {token or self.key_file.read_text().strip()}"
        command = ("enter", "curl", "-sN", "-i", "-m", "120", f"{self.facade_url()}{path}", "-H", credential)
        output = run_cluster(*command, *options)
        return int(output.split()[1]), output

    def write_values(self, providers: dict[str, Any] = PROVIDERS, **more: Any) -> None:
        """Write the values that the pages do not have: models in the cluster, requests that fit a small machine, and
        what an earlier call has added.
        """
        path = self.operator.folder / "more.yaml"
        values: dict[str, Any] = {name: {**SMALL} for name in VALUES_OF}
        values["llmGateway"] |= {"egress": [OPEN_MODELS]}
        values |= json.loads(path.read_text()) if path.exists() else {}
        for name, value in more.items():
            values[name] = values.get(name, {}) | value
        values["config"] = {
            "agents": {"slow.json": json.dumps(SLOW)},
            "providers": {"providers.json": json.dumps(providers)},
        }
        path.write_text(json.dumps(values))


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


def prepare_prod(namespace: str, checkout: Path = ROOT, words: dict[str, str] | None = None, **values: Any) -> Install:
    """Prepare an installation without pods: values, secrets, certificates, an empty database and an empty volume."""
    operator = Operator(make_folder(namespace, checkout), _words(namespace) | (words or {}))
    install = Install(namespace, operator)
    add_database(namespace)
    add_volume(namespace, namespace, "headrace-workspaces", "ReadWriteMany", "shared")
    install.write_values(**values)
    operator.follow("install.md", "1. Write your values")
    (operator.folder / "database-url.txt").write_text(f"postgresql://headrace@{HOST}/{namespace}")
    (operator.folder / "provider-keys.env").write_text("OPENAI_API_KEY=sk-simulated\n")
    operator.follow("install.md", "2. Make the secrets")
    authority = FOLDER / "operators" / "ca"
    if authority.exists():
        shutil.copytree(authority, operator.folder / "certificates" / "ca")
    operator.follow("install.md", "3. Issue certificates")
    shutil.copytree(operator.folder / "certificates" / "ca", authority, dirs_exist_ok=True)
    return install


def install_prod(namespace: str = "headrace", *, issuer: bool = False, **values: Any) -> Install:
    """Install replicas with a database; all namespaces' certificates have the same authority. With `issuer`, they
    accept its tokens, encrypt what they store, and have the gateway in front of the facade.
    """
    install = prepare_prod(namespace, **values)
    if issuer:
        folder = install.operator.folder / "issuer"
        issue_certificate(folder)
        install.write_values(
            **trust_issuer(namespace, folder),
            gateway={"enabled": True},
            encryption={"existingSecret": "master-keys"},  # as docs/guides/encryption.md says
        )
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
    words = {
        "/volumes/workspaces": f"/run/volumes/{namespace}",
        "--values ours.yaml": "--values ours.yaml --values more.yaml",
    }
    if namespace == "headrace":
        return words
    return words | {
        "-n headrace": f"-n {namespace}",
        "namespace headrace": f"namespace {namespace}",
        "RELEASE=headrace": f"RELEASE=headrace NAMESPACE={namespace}",
    }
