"""What each pod is held to: its rights, its probes, its end, and how many there are."""

from __future__ import annotations

import re

import pytest
import yaml

from services.orchestrator.lifecycle.runs import ENDING_S
from services.runtime.process.config import load_settings
from tests.deploy.manifests import (
    RESTRICTED,
    VARIANTS,
    Manifest,
    build_overlay,
    containers,
    environment,
    needs_go,
    of_kind,
    pods,
    workloads,
)
from tests.deploy.settings import CONFIGS, PORTS, prefix

pytestmark = needs_go

PROBES = 7000
"""Where the kubelet asks, which has no certificate."""


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_namespace_refuses_what_is_not_restricted(variant: str) -> None:
    (namespace,) = of_kind(variant, "Namespace").values()
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_pod_has_no_rights(variant: str) -> None:
    for name, pod in pods(variant).items():
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False, name
        assert spec["enableServiceLinks"] is False, name
        assert (spec["securityContext"]["runAsNonRoot"], spec["securityContext"]["runAsUser"]) == (True, 10001), name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
    for container in containers(variant):
        assert container["securityContext"] == RESTRICTED, container["name"]


def test_on_openshift_a_pod_names_no_user() -> None:
    overlay = {
        "kind": "Kustomization",
        "resources": ["headrace/deploy/kubernetes/overlays/prod"],
        "components": ["headrace/deploy/kubernetes/components/openshift"],
    }
    named = [item for item in build_overlay(yaml.safe_dump(overlay)) if item["kind"] in ("Deployment", "StatefulSet")]
    assert len(named) == len(workloads("prod"))
    for workload in named:
        context = workload["spec"]["template"]["spec"]["securityContext"]
        assert context.keys() == {"runAsNonRoot", "seccompProfile", "fsGroupChangePolicy"}


def test_a_pod_does_not_start_with_files_that_its_service_would_refuse() -> None:
    before = [
        (name, container) for name, pod in pods("prod").items() for container in pod["spec"].get("initContainers", [])
    ]
    checks = {name: container for name, container in before if container["name"] == "check"}
    assert checks.keys() == {"orchestrator", "llm-gateway", "tools"}
    for name, check in checks.items():
        (container,) = pods("prod")[name]["spec"]["containers"]
        assert check["args"] == ["headrace", "check", environment(container)["HEADRACE_CONFIG_DIR"]]
        assert (check["image"], check["securityContext"]) == (container["image"], container["securityContext"])
        assert [mount for mount in check["volumeMounts"] if mount not in container["volumeMounts"]] == []
        assert {"memory", "ephemeral-storage"} == check["resources"]["limits"].keys()


def test_tables_are_brought_to_a_version_where_no_probe_counts_the_time() -> None:
    (migration,) = pods("prod")["memory"]["spec"]["initContainers"]
    (container,) = pods("prod")["memory"]["spec"]["containers"]
    assert migration["args"] == ["python", "-m", "services.memory.migration"]
    assert (migration["image"], migration["securityContext"]) == (container["image"], container["securityContext"])
    assert [variable for variable in migration["env"] if variable not in container["env"]] == []
    # The services of before go on until one of the new version is ready.
    assert workloads("prod")["memory"]["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_each_service_has_an_identity_of_its_own_without_a_token() -> None:
    accounts = of_kind("prod", "ServiceAccount")
    assert {name: pod["spec"]["serviceAccountName"] for name, pod in pods("prod").items()} == {
        name: name for name in accounts
    }
    assert all(account["automountServiceAccountToken"] is False for account in accounts.values())


@pytest.mark.parametrize("variant", VARIANTS)
def test_images_have_a_version_and_resources_a_bound(variant: str) -> None:
    for container in containers(variant):
        assert re.fullmatch(r"(ours/)?headrace:\d+\.\d+\.\d+", container["image"])
        assert container["resources"]["limits"]["memory"]
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_container_writes_only_to_volumes_with_a_bound(variant: str) -> None:
    for container in containers(variant):
        assert container["resources"]["limits"]["ephemeral-storage"], container["name"]
    for pod in pods(variant).values():
        for volume in pod["spec"]["volumes"]:
            assert "emptyDir" not in volume or volume["emptyDir"]["sizeLimit"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_images_first_process_is_kept(variant: str) -> None:
    """With `command` the pod's own program would be the first process, which loses early signals."""
    assert [container["name"] for container in containers(variant) if "command" in container] == []


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_volume_is_there_and_used(variant: str) -> None:
    for name, workload in workloads(variant).items():
        spec = workload["spec"]["template"]["spec"]
        claimed = {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", ())}
        mounts = [mount for container in spec["containers"] for mount in container["volumeMounts"]]
        assert {mount["name"] for mount in mounts} == claimed | {volume["name"] for volume in spec["volumes"]}, name
    claims, maps = of_kind(variant, "PersistentVolumeClaim"), of_kind(variant, "ConfigMap")
    jobs = [item["spec"]["jobTemplate"]["spec"]["template"] for item in of_kind(variant, "CronJob").values()]
    volumes = [volume for pod in [*pods(variant).values(), *jobs] for volume in pod["spec"]["volumes"]]
    assert {item["persistentVolumeClaim"]["claimName"] for item in volumes if "persistentVolumeClaim" in item} == set(
        claims
    )
    read = {variable["valueFrom"]["configMapKeyRef"]["name"] for variable in variables(variant, "configMapKeyRef")}
    assert {item["configMap"]["name"] for item in volumes if "configMap" in item} | read == set(maps)


def variables(variant: str, source: str) -> list[Manifest]:
    """Those of all containers that are taken from such a source."""
    given = [variable for container in containers(variant) for variable in container.get("env", ())]
    return [variable for variable in given if source in variable.get("valueFrom", ())]


def test_every_service_is_probed_at_a_port_that_answers_without_a_certificate() -> None:
    for name, pod in pods("prod").items():
        (container,) = pod["spec"]["containers"]
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert container[probe].get("timeoutSeconds", 1) > 1, "a busy node takes longer than the kubelet's default"
            if name == "facade":
                path = "/readyz" if probe == "readinessProbe" else "/healthz"
                assert container[probe]["httpGet"] == {"path": path, "port": PORTS[name]}
            else:
                listen = environment(container)[f"HEADRACE_{prefix(name)}_LISTEN"]
                assert listen == f"0.0.0.0:{PORTS[name]},plain:0.0.0.0:{PROBES}"
                # One without valid files is not ready, and is not started again for it.
                name_of_check = {} if probe == "readinessProbe" else {"service": "live"}
                assert container[probe]["grpc"] == {"port": PROBES} | name_of_check
    # The kubelet does not reach the loopback of a pod: the facade is asked, for all of them.
    (suite,) = pods("dev").values()
    assert [item["name"] for item in suite["spec"]["containers"] if "readinessProbe" in item] == ["facade"]


@pytest.mark.parametrize("variant", ["dev", "prod"])
def test_the_end_is_waited_for_longer_than_it_takes(variant: str) -> None:
    for pod in pods(variant).values():
        needed_s = max(ending_s(container) for container in pod["spec"]["containers"])
        assert pod["spec"]["terminationGracePeriodSeconds"] > needed_s


def ending_s(container: Manifest) -> float:
    """How long a container may need: it is told late, its runs end, then its calls."""
    if container["name"] == "simulator":
        return 0.0
    service = container["name"]
    ours = {name: value for name, value in environment(container).items() if name.startswith("HEADRACE_")}
    config = load_settings(CONFIGS[service], prefix(service), ours)
    drain_s = (config.process if service == "facade" else config.server).drain_s
    sleep_s = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    return sleep_s + drain_s + (drain_s + ENDING_S if service == "orchestrator" else 0)


def test_one_pod_of_a_service_may_be_disrupted_at_a_time() -> None:
    budgets = of_kind("prod", "PodDisruptionBudget")
    assert budgets.keys() == workloads("prod").keys()
    for name, budget in budgets.items():
        assert budget["spec"]["maxUnavailable"] == 1
        assert budget["spec"]["selector"] == workloads("prod")[name]["spec"]["selector"]


def test_a_service_is_scaled_or_has_replicas_and_more_than_one() -> None:
    scaled = {item["spec"]["scaleTargetRef"]["name"]: item["spec"] for item in of_kind("prod", SCALER).values()}
    for name, workload in workloads("prod").items():
        assert ("replicas" in workload["spec"]) != (name in scaled), "the two would take turns in undoing each other"
        assert (scaled[name]["minReplicas"] if name in scaled else workload["spec"]["replicas"]) > 1
    assert scaled.keys() == workloads("prod").keys()
    for spec in scaled.values():
        # Where nobody serves the metrics of pods, CPU is all there is.
        assert spec["metrics"][-1]["resource"]["name"] == "cpu"
        down = spec["behavior"]["scaleDown"]
        assert down["stabilizationWindowSeconds"] >= 300
        assert [policy["periodSeconds"] >= 60 for policy in down["policies"]] == [True]


SCALER = "HorizontalPodAutoscaler"


def test_the_providers_quotas_hold_for_as_many_gateways_as_there_may_be() -> None:
    (container,) = (item for item in containers("prod") if item["name"] == "llm-gateway")
    most = of_kind("prod", SCALER)["llm-gateway"]["spec"]["maxReplicas"]
    assert environment(container)["HEADRACE_LLM_GATEWAY_REPLICAS"] == str(most)


def test_a_runtime_class_is_the_sandbox_of_the_tools_pods() -> None:
    spec = pods("own")["tools"]["spec"]
    assert spec["runtimeClassName"] == "gvisor"
    assert environment(spec["containers"][0])["HEADRACE_TOOLS_SANDBOX"] == "external"
    assert [name for name, pod in pods("prod").items() if "runtimeClassName" in pod["spec"]] == []


def test_provider_keys_are_known_to_the_gateway_alone() -> None:
    secrets = {
        container["name"]: [source["secretRef"]["name"] for source in container["envFrom"]]
        for container in containers("prod")
        if "envFrom" in container
    }
    assert secrets == {"llm-gateway": ["provider-keys"]}
