"""Makes the Helm chart from what kustomize builds of overlays/prod: one source for both.

`make_chart.py FOLDER` reads the build from standard input, and writes what is made of a chart into the folder.

The objects are the overlay's. What a user may set becomes a value, whose default is what the overlay says; what the
components jwt, traces, gvisor and backup add becomes a block that a value turns on. go-facade is kustomize's alone.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

import yaml

Manifest: TypeAlias = dict[str, Any]

ROOT = Path(__file__).parents[2]
COMPONENTS = ROOT / "deploy" / "kubernetes" / "components"
VALUE_NAMES = {"llm-gateway": "llmGateway"}
"""Of services whose name is none in a template."""

KUBERNETES_MIN = "1.30.0-0"
"""preStop.sleep is in force from there on."""

SECRETS = {"database": "database", "credentials": "credentials", "provider-keys": "providerKeys"}
"""Values of the names of Secrets that the chart does not make."""

COMMENTS = {
    "image": "Where the image is; without a tag it is the chart's appVersion. A digest (sha256:…) goes before a tag.",
    "imagePullSecrets": "As in a pod: [{name: …}].",
    "config": "Files of agents, providers and tools, by their names. A changed file takes effect without a restart.",
    "secrets": "Secrets that are there before: database (key url), credentials (api-keys.json), providerKeys (what\n"
    "providers read). Each service's certificate is in <service>-tls (tls.crt, tls.key, ca.crt).",
    "jwt": "Tokens of an issuer beside API keys; the ConfigMap `tokens` has jwks-url, issuer and audience.",
    "traces": "Spans to the Service otel-collector of the monitoring namespace.",
    "gvisor": "Commands of models in a kernel of their own, by a RuntimeClass of this cluster.",
    "workspaces": "The volume that all tools pods share (ReadWriteMany); an empty class is the cluster's default.",
    "backup": "A backup every night into a volume of its own. The image has pg_dump of the server's version or later.",
    "network": "Namespaces that policies let in or out; off where other policies do it.",
    "autoscaling": "By open streams, as the Prometheus adapter gives them; off: each service has its least replicas.",
    "facade": "Of each service: replicas, resources, and variables as in a container (env: [{name: …, value: …}]).",
}

_blocks = itertools.count()


class Template:
    """An object with marks in it, which are template text once it is written."""

    def __init__(self, manifest: Manifest, condition: str = "") -> None:
        self.manifest = manifest
        self._condition = condition
        self._texts: dict[str, str] = {}

    def mark(self, text: str) -> str:
        """Return what stands for an expression in a scalar."""
        mark = f"@@{next(_blocks)}@@"
        self._texts[mark] = text
        return mark

    def write(self) -> str:
        text = yaml.safe_dump(self.manifest, sort_keys=False, width=1000, allow_unicode=True)
        for mark, replacement in self._texts.items():
            if replacement.startswith("\n"):  # lines of their own, where the mark is an item or a key
                line = re.compile(rf"^( *)(?:- )?'?{mark}'?(?:: null)?\n", re.M)
                text = line.sub(lambda found, lines=replacement: _indent(lines[1:], found[1]), text)
            else:
                text = re.sub(rf"'?{mark}'?", lambda _, whole=replacement: whole, text)
        return f"{{{{- if {self._condition} }}}}\n{text}{{{{- end }}}}\n" if self._condition else text


def _indent(lines: str, by: str) -> str:
    """Indent YAML lines; template lines that begin with {{- take the white space before them away."""
    return "".join(f"{by}{line}\n" for line in lines.splitlines())


def main(chart: Path) -> None:
    manifests = [item for item in yaml.safe_load_all(sys.stdin) if item["kind"] != "Namespace"]
    values = make_values(manifests)
    templates = {"config": [], "network": [], "storage": [], "backup": []} | {
        name: [] for name in list_services(manifests)
    }
    for item in [*manifests, *read_component_policies(), *read_backup()]:
        templates[_find_file(item, templates)].append(make_template(item).write())
    (chart / "templates").mkdir(parents=True, exist_ok=True)
    for name, texts in templates.items():
        (chart / "templates" / f"{name}.yaml").write_text("---\n".join(texts))
    (chart / "values.yaml").write_text(write_values(values))
    (chart / "values.schema.json").write_text(json.dumps(make_schema(values), indent=2) + "\n")
    (chart / "Chart.yaml").write_text(make_description())


def list_services(manifests: Iterable[Manifest]) -> list[str]:
    return [item["metadata"]["name"] for item in manifests if item["kind"] in ("Deployment", "StatefulSet")]


def read_component_policies() -> list[Manifest]:
    policies: list[Manifest] = []
    for component in ("jwt", "traces"):
        for item in yaml.safe_load_all((COMPONENTS / component / "network.yaml").read_text()):
            policies.append(item | {"component": component})
    return policies


def read_backup() -> list[Manifest]:
    """Return what the component backup adds."""
    files = ("claim", "cronjob", "network")
    return [
        yaml.safe_load((COMPONENTS / "backup" / f"{file}.yaml").read_text()) | {"component": "backup"} for file in files
    ]


def _find_file(item: Manifest, files: Iterable[str]) -> str:
    if item.get("component") == "backup":
        return "backup"
    match item["kind"]:
        case "ConfigMap":
            return "config"
        case "NetworkPolicy":
            return "network"
        case "PersistentVolumeClaim":
            return "storage"
        case _:
            return item["metadata"]["name"].removesuffix("-peers")


def make_template(item: Manifest) -> Template:
    component = item.pop("component", "")
    condition = {"NetworkPolicy": ".Values.network.enabled", "HorizontalPodAutoscaler": ".Values.autoscaling.enabled"}
    shown = condition.get(item["kind"], "")
    enabled = f".Values.{component}.enabled" if component else ""
    template = Template(item, f"and {shown} {enabled}" if shown and enabled else shown or enabled)
    item["metadata"]["namespace"] = template.mark("{{ .Release.Namespace }}")
    name = item["metadata"]["name"]
    match item["kind"]:
        case "ConfigMap":
            item["data"] = template.mark(f"\n{{{{- toYaml .Values.config.{name} | nindent 2 }}}}")
            item["data"] = {item["data"]: None}
        case "Deployment" | "StatefulSet":
            _open_workload(template, name)
        case "HorizontalPodAutoscaler":
            for end in ("min", "max"):
                item["spec"][f"{end}Replicas"] = template.mark(f"{{{{ .Values.{_value(name)}.replicas.{end} }}}}")
        case "PersistentVolumeClaim":
            value = f".Values.{component or 'workspaces'}"
            item["spec"]["resources"]["requests"]["storage"] = template.mark(f"{{{{ {value}.size }}}}")
            lines = f"\n{{{{- with {value}.storageClassName }}}}\nstorageClassName: {{{{ . }}}}\n{{{{- end }}}}"
            item["spec"][template.mark(lines)] = None
        case "CronJob":
            _open_backup(template)
        case "NetworkPolicy":
            _open_policy(template)
        case _:
            pass  # nothing of it is to be set
    return template


def _open_workload(template: Template, name: str) -> None:
    spec, value = template.manifest["spec"], f".Values.{_value(name)}"
    pod = spec["template"]["spec"]
    if "replicas" in spec:
        spec["replicas"] = template.mark(f"{{{{ {value}.replicas }}}}")
    else:
        lines = f"replicas: {{{{ {value}.replicas.min }}}}"
        spec[template.mark(_make_block("not .Values.autoscaling.enabled", lines))] = None
    lines = "\n{{- with .Values.imagePullSecrets }}\nimagePullSecrets: {{- toYaml . | nindent 6 }}\n{{- end }}"
    pod[template.mark(lines)] = None
    for container in [*pod.get("initContainers", ()), *pod["containers"]]:
        container["image"] = template.mark('{{ include "headrace.image" . }}')
    [container] = pod["containers"]
    container["resources"] = {template.mark(f"\n{{{{- toYaml {value}.resources | nindent 10 }}}}"): None}
    for source in container.get("envFrom", ()):
        _open_secret(template, source["secretRef"], "name")
    for holder in [*pod.get("initContainers", ()), container]:
        for variable in holder.get("env", ()):
            if secret := variable.get("valueFrom", {}).get("secretKeyRef"):
                _open_secret(template, secret, "name")
    for volume in pod["volumes"]:
        if "secret" in volume:
            _open_secret(template, volume["secret"], "secretName")
    _open_variables(template, name, container["env"])
    if name == "tools":
        lines = "runtimeClassName: {{ .Values.gvisor.runtimeClassName }}"
        pod[template.mark(_make_block(".Values.gvisor.enabled", lines))] = None


def _open_backup(template: Template) -> None:
    spec = template.manifest["spec"]
    spec["schedule"] = template.mark("{{ .Values.backup.schedule | quote }}")
    pod = spec["jobTemplate"]["spec"]["template"]["spec"]
    lines = "\n{{- with .Values.imagePullSecrets }}\nimagePullSecrets: {{- toYaml . | nindent 12 }}\n{{- end }}"
    pod[template.mark(lines)] = None
    [dump], [backup] = pod["initContainers"], pod["containers"]
    dump["image"] = template.mark("{{ .Values.backup.databaseImage }}")
    _open_secret(template, dump["env"][0]["valueFrom"]["secretKeyRef"], "name")
    backup["image"] = template.mark('{{ include "headrace.image" . }}')
    backup["env"][0]["value"] = template.mark("{{ .Values.backup.keep | quote }}")


def _open_secret(template: Template, named: dict[str, Any], key: str) -> None:
    if value := SECRETS.get(named[key]):
        named[key] = template.mark(f"{{{{ .Values.secrets.{value} }}}}")


def _open_variables(template: Template, name: str, variables: list[Any]) -> None:
    for variable in variables:
        if variable["name"] == "HEADRACE_AUTH" and name != "llm-gateway":
            variable["value"] = template.mark('{{ ternary "jwt,api_key" "api_key" .Values.jwt.enabled }}')
        if variable["name"] == "HEADRACE_LLM_GATEWAY_REPLICAS":
            variable["value"] = template.mark("{{ .Values.llmGateway.replicas.max | quote }}")
    added = {"traces": read_added_variables("traces")}
    for variable in added["traces"]:
        variable["value"] = variable["value"].replace(".monitoring:", ".{{ .Values.network.monitoringNamespace }}:")
    if name != "llm-gateway":
        added["jwt"] = read_added_variables("jwt")
    if name == "tools":
        added["gvisor"] = [{"name": "HEADRACE_TOOLS_SANDBOX", "value": "external"}]
    for component, more in added.items():
        block = _make_block(f".Values.{component}.enabled", yaml.safe_dump(more, sort_keys=False).rstrip())
        variables.append(template.mark(block))
    lines = f"\n{{{{- with .Values.{_value(name)}.env }}}}\n{{{{- toYaml . | nindent 8 }}}}\n{{{{- end }}}}"
    variables.append(template.mark(lines))


def read_added_variables(component: str) -> list[Manifest]:
    patches = yaml.safe_load((COMPONENTS / component / "container.yaml").read_text())
    return [patch["value"] for patch in patches if patch["op"] == "add" and patch["path"].endswith("/env/-")]


def _make_block(condition: str, lines: str) -> str:
    return f"\n{{{{- if {condition} }}}}\n{lines}\n{{{{- end }}}}"


def _open_policy(template: Template) -> None:
    names = {"monitoring": "monitoringNamespace", "postgresql": "databaseNamespace"}
    for rule in itertools.chain(*(template.manifest["spec"].get(way, ()) for way in ("ingress", "egress"))):
        for peer in [*rule.get("from", ()), *rule.get("to", ())]:
            labels = peer.get("namespaceSelector", {}).get("matchLabels", {})
            if value := names.get(labels.get("kubernetes.io/metadata.name", "")):
                labels["kubernetes.io/metadata.name"] = template.mark(f"{{{{ .Values.network.{value} }}}}")


def _value(service: str) -> str:
    return VALUE_NAMES.get(service, service)


def make_values(manifests: list[Manifest]) -> Manifest:
    by_name = {(item["kind"], item["metadata"]["name"]): item for item in manifests}
    config = {name: item["data"] for (kind, name), item in by_name.items() if kind == "ConfigMap"}
    values: Manifest = {
        "image": {"repository": "headrace", "tag": "", "digest": ""},
        "imagePullSecrets": [],
        "config": config,
        "secrets": {value: name for name, value in SECRETS.items()},
        "jwt": {"enabled": False},
        "traces": {"enabled": False},
        "gvisor": {"enabled": False, "runtimeClassName": "gvisor"},
        "workspaces": {
            "storageClassName": "",
            "size": by_name["PersistentVolumeClaim", "workspaces"]["spec"]["resources"]["requests"]["storage"],
        },
        "backup": make_backup_values(),
        "network": {"enabled": True, "monitoringNamespace": "monitoring", "databaseNamespace": "postgresql"},
        "autoscaling": {"enabled": True},
    }
    for name in list_services(manifests):
        workload = by_name.get(("Deployment", name)) or by_name["StatefulSet", name]
        scaler = by_name.get(("HorizontalPodAutoscaler", name))
        ends = {end: scaler["spec"][f"{end}Replicas"] for end in ("min", "max")} if scaler else None
        [container] = workload["spec"]["template"]["spec"]["containers"]
        resources = json.loads(json.dumps(container["resources"]))
        values[_value(name)] = {"replicas": ends or workload["spec"]["replicas"], "resources": resources, "env": []}
    return values


def make_backup_values() -> Manifest:
    claim, job, _ = read_backup()
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return {
        "enabled": False,
        "schedule": job["spec"]["schedule"],
        "keep": int(pod["containers"][0]["env"][0]["value"]),
        "databaseImage": pod["initContainers"][0]["image"],
        "storageClassName": "",
        "size": claim["spec"]["resources"]["requests"]["storage"],
    }


def write_values(values: Manifest) -> str:
    text = "# Made of deploy/kubernetes/overlays/prod by `make gen`. What you set goes into a file of your own (-f).\n"
    for key, value in values.items():
        text += "".join(f"# {line}\n" for line in COMMENTS.get(key, "").splitlines())
        text += yaml.dump({key: value}, Dumper=_Blocks, sort_keys=False, width=120, allow_unicode=True)
    return text


class _Blocks(yaml.SafeDumper):
    """Texts of several lines as blocks."""


_Blocks.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, "|" if "\n" in text else None)
)


def make_schema(value: Any, path: tuple[str, ...] = ()) -> Manifest:
    """Return what Helm holds values against: a key that there is not is refused by name."""
    match value:
        case dict() if path[:1] == ("config",) and len(path) == 2:
            return {"type": "object", "additionalProperties": {"type": "string"}}
        case dict() if path[-1:] == ("resources",):
            return {"type": "object"}
        case dict():
            properties = {key: make_schema(one, (*path, key)) for key, one in value.items()}
            # Helm adds `global` to the values of a chart by itself.
            extra = {} if path else {"global": {"type": "object"}}
            return {"type": "object", "additionalProperties": False, "properties": properties | extra}
        case list():
            return {"type": "array", "items": {"type": "object", "required": ["name"]}}
        case bool():
            return {"type": "boolean"}
        case int():
            return {"type": "integer", "minimum": 1}
        case _:
            return {"type": "string"}


def make_description() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return yaml.safe_dump(
        {
            "apiVersion": "v2",
            "name": "headrace",
            "description": project["description"],
            "type": "application",
            "version": project["version"],
            "appVersion": project["version"],
            "kubeVersion": f">={KUBERNETES_MIN}",
        },
        sort_keys=False,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
