"""The schemas that kubeconform reads: those that Kubernetes publishes, and those of custom resources.

As published they accept unknown fields, so a misspelt one would have no effect; here they are strict.
"""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.manifests import TOOLS, Manifest, compile_tool
from trials.kube.apiserver.cluster import MODULE

CUSTOM = {
    "sigs.k8s.io/gateway-api@v1.4.0": ["config/crd/standard/gateway.networking.k8s.io_httproutes.yaml"],
    "github.com/prometheus-operator/prometheus-operator@v0.85.0": [
        "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
        "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
    ],
}
"""Definitions of custom resources, by Go module."""

DOWNLOAD_TIMEOUT_S = 120.0

KINDS = re.compile(
    r"ConfigMap|CronJob|Deployment|HorizontalPodAutoscaler|Ingress|Job|NetworkPolicy|PersistentVolumeClaim"
    r"|PodDisruptionBudget|Service|ServiceAccount|StatefulSet"
)


def write_schemas(folder: Path) -> str:
    """Write a file for each kind; return where kubeconform finds them."""
    swagger = json.loads((download("k8s.io/kubernetes", MODULE) / "api/openapi-spec/swagger.json").read_bytes())
    definitions = swagger["definitions"]
    for definition in definitions.values():
        for named in definition.get("x-kubernetes-group-version-kind", ()):
            if KINDS.fullmatch(named["kind"]):
                _write(folder, named["group"], named["version"], named["kind"], _close(definition, definitions))
    for module, files in CUSTOM.items():
        for file in files:
            spec = yaml.load((download(module, TOOLS) / file).read_bytes(), yaml.CSafeLoader)["spec"]
            for version in spec["versions"]:
                schema = version["schema"]["openAPIV3Schema"]
                _write(folder, spec["group"], version["name"], spec["names"]["kind"], _make_strict(schema))
    return f"{folder}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"


def download(module: str, of: Path) -> Path:
    """Return the folder of a Go module, whose version the go.mod in `of` names if `module` does not."""
    command = ["go", "mod", "download", "-json", module]
    done = subprocess.run(command, cwd=of, capture_output=True, timeout=DOWNLOAD_TIMEOUT_S, check=True)
    return Path(json.loads(done.stdout)["Dir"])


def _write(folder: Path, group: str, version: str, kind: str, schema: dict[str, Any]) -> None:
    suffix = "-".join(filter(None, (group.partition(".")[0], version)))
    (folder / f"{kind}-{suffix}.json".lower()).write_text(json.dumps(schema))


def _close(definition: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return a schema along with all schemas that it refers to."""
    included: dict[str, Any] = {}
    waiting = _list_references(definition)
    while waiting:
        if (name := waiting.pop()) not in included:
            included[name] = _make_strict(definitions[name])
            waiting |= _list_references(definitions[name])
    return _make_strict(definition) | {"definitions": included}


def _list_references(definition: dict[str, Any]) -> set[str]:
    return set(re.findall(r'"#/definitions/([^"]+)"', json.dumps(definition)))


def _make_strict(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_make_strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {name: _make_strict(value) for name, value in schema.items()}
    if isinstance(strict.get("properties"), dict) and "type" in strict:
        strict.setdefault("additionalProperties", False)
    if strict.get("format") == "int-or-string" or strict.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    return strict


def list_problems(schemas: str, folder: Path, *items: Manifest) -> list[str]:
    # As JSON, because PyYAML writes texts such as 1e3 as Go's parser reads numbers.
    (folder / "objects.yaml").write_text("\n---\n".join(map(json.dumps, items)))
    program = compile_tool("github.com/yannh/kubeconform/cmd/kubeconform")
    command = [program, "-strict", "-output", "json", "-schema-location", schemas, folder / "objects.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return [f"{item['kind']} {item['name']}: {item['msg']}" for item in json.loads(done.stdout)["resources"]]
