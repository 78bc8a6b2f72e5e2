"""Each pod's rights, probes, shutdown, volumes and number."""

import re

import pytest

from services.orchestrator.lifecycle.runs import ENDING_S
from services.runtime.process.config import load_settings
from tests.deploy.manifests import (
    RESTRICTED,
    VARIANTS,
    Manifest,
    build_manifests,
    container_of,
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
"""The port of the kubelet's probes, which need no certificate."""


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_pod_has_no_rights(variant: str) -> None:
    user = {} if variant == "openshift" else {"runAsUser": 10001, "runAsGroup": 10001, "fsGroup": 10001}
    for name, pod in pods(variant).items():
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False, name
        assert spec["enableServiceLinks"] is False, name
        assert spec["securityContext"] == user | {
            "runAsNonRoot": True,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        for container in [*spec.get("initContainers", ()), *spec["containers"]]:
            assert container["securityContext"] == RESTRICTED, container["name"]


def test_init_containers_check_files_and_migrate_tables_before_a_service_starts() -> None:
    first = {name: pod["spec"].get("initContainers", [None])[0] for name, pod in pods("default").items()}
    assert first.pop("facade") is None
    migration = first.pop("memory")
    assert migration["args"] == ["python", "-m", "services.memory.migration"]
    for name, check in first.items():
        container = container_of("default", name)
        assert (check["name"], check["args"]) == ("check", ["headrace", "check", "/etc/headrace"])
        assert environment(container)["HEADRACE_CONFIG_DIR"] == "/etc/headrace"
    for name, check in (first | {"memory": migration}).items():
        shared = ("image", "env", "volumeMounts", "securityContext", "resources")
        assert [check[key] for key in shared] == [container_of("default", name)[key] for key in shared]
    # The old services keep running until a new one is ready.
    assert workloads("default")["memory"]["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_each_service_has_an_identity_of_its_own_without_a_token() -> None:
    accounts = of_kind("default", "ServiceAccount")
    assert {name: pod["spec"]["serviceAccountName"] for name, pod in pods("default").items()} == {
        name: f"headrace-{name}" for name in accounts
    }
    assert all(account["automountServiceAccountToken"] is False for account in accounts.values())


@pytest.mark.parametrize("variant", VARIANTS)
def test_images_have_a_version_and_containers_resource_limits(variant: str) -> None:
    for container in containers(variant):
        assert re.fullmatch(r"[\w./]*headrace(:\d+\.\d+\.\d+|@sha256:\w{64})", container["image"])
        assert container["resources"]["limits"]["memory"]
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_container_writes_only_to_volumes_with_a_size_limit(variant: str) -> None:
    for container in containers(variant):
        assert container["resources"]["limits"]["ephemeral-storage"], container["name"]
    for pod in pods(variant).values():
        for volume in pod["spec"]["volumes"]:
            assert "emptyDir" not in volume or volume["emptyDir"]["sizeLimit"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_container_replaces_the_images_entry_point(variant: str) -> None:
    """With `command`, the pod's own program would be the first process and would lose early signals."""
    assert [container["name"] for container in containers(variant) if "command" in container] == []


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_volume_exists_and_is_mounted(variant: str) -> None:
    for name, workload in workloads(variant).items():
        spec = workload["spec"]["template"]["spec"]
        claims = workload["spec"].get("volumeClaimTemplates", ())
        # As the API server writes them: otherwise tools that compare the two would show a permanent difference.
        assert {(claim["apiVersion"], claim["kind"]) for claim in claims} <= {("v1", "PersistentVolumeClaim")}
        claimed = {claim["metadata"]["name"] for claim in claims}
        mounts = [mount for container in spec["containers"] for mount in container["volumeMounts"]]
        assert {mount["name"] for mount in mounts} == claimed | {volume["name"] for volume in spec["volumes"]}, name
    rendered_names = {
        item["metadata"]["name"]
        for item in build_manifests(variant)
        if item["kind"] in ("ConfigMap", "PersistentVolumeClaim")
    }
    rendered_names |= {"data-headrace-0"} if variant == "single" else set()
    assert list_used(variant) - {"authority", "approvals"} == rendered_names


def list_used(variant: str) -> set[str]:
    """Return the claims and ConfigMaps that pods mount."""
    jobs = [item["spec"]["jobTemplate"]["spec"]["template"] for item in of_kind(variant, "CronJob").values()]
    volumes = [volume for pod in [*pods(variant).values(), *jobs] for volume in pod["spec"]["volumes"]]
    claims = {item["persistentVolumeClaim"]["claimName"] for item in volumes if "persistentVolumeClaim" in item}
    return claims | {item["configMap"]["name"] for item in volumes if "configMap" in item}


def test_every_service_is_probed_at_a_port_that_answers_without_a_certificate() -> None:
    for name in CONFIGS:
        container = container_of("default", name)
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert container[probe].get("timeoutSeconds", 1) > 1, "a busy node takes longer than the kubelet's default"
            if name == "facade":
                path = "/readyz" if probe == "readinessProbe" else "/healthz"
                assert container[probe]["httpGet"] == {"path": path, "port": PORTS[name]}
            else:
                listen = environment(container)[f"HEADRACE_{prefix(name)}_LISTEN"]
                assert listen == f"[::]:{PORTS[name]},plain:[::]:{PROBES}"
                # A service without valid files is not ready, but must not be restarted.
                name_of_check = {} if probe == "readinessProbe" else {"service": "live"}
                assert container[probe]["grpc"] == {"port": PROBES} | name_of_check
    # The facade answers for all services of its pod.
    assert container_of("single", "headrace")["readinessProbe"]["httpGet"]["path"] == "/readyz?all"


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_grace_period_is_longer_than_a_container_needs_to_stop(variant: str) -> None:
    for pod in pods(variant).values():
        needed_s = max(find_stop_time_s(container) for container in pod["spec"]["containers"])
        assert pod["spec"]["terminationGracePeriodSeconds"] > needed_s


def find_stop_time_s(container: Manifest) -> float:
    """Return a container's longest time to stop: it still serves for a while, then its runs end, then calls."""
    service = "facade" if container["name"] == "headrace" else container["name"]
    if service == "gateway":
        return 10 + float(environment(container)["HEADRACE_GATEWAY_DRAIN_S"])
    ours = {name: value for name, value in environment(container).items() if name.startswith("HEADRACE_")}
    config = load_settings(CONFIGS[service], prefix(service), ours)
    drain_s = (config.process if service == "facade" else config.server).drain_s
    sleep_s = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    return sleep_s + drain_s + (drain_s + ENDING_S if service == "orchestrator" else 0)


def test_one_pod_of_a_service_may_be_disrupted_at_a_time() -> None:
    budgets = of_kind("default", "PodDisruptionBudget")
    assert budgets.keys() == workloads("default").keys()
    for name, budget in budgets.items():
        assert budget["spec"]["maxUnavailable"] == 1
        assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        assert budget["spec"]["selector"] == workloads("default")[name]["spec"]["selector"]


@pytest.mark.parametrize("variant", ["default", "openshift"])
def test_every_service_has_more_than_one_replica_or_an_autoscaler(variant: str) -> None:
    scaled = {item["spec"]["scaleTargetRef"]["name"]: item["spec"] for item in of_kind(variant, SCALER).values()}
    assert len(scaled) == (5 if variant == "default" else 0)
    for workload in workloads(variant).values():
        name = workload["metadata"]["name"]
        assert ("replicas" in workload["spec"]) != (name in scaled), "autoscaler and fixed replicas would conflict"
        assert (scaled[name]["minReplicas"] if name in scaled else workload["spec"]["replicas"]) > 1
    for spec in scaled.values():
        # Without a server for pods' metrics, only CPU is available.
        assert spec["metrics"][-1]["resource"]["name"] == "cpu"
        down = spec["behavior"]["scaleDown"]
        assert down["stabilizationWindowSeconds"] >= 300
        assert [policy["periodSeconds"] >= 60 for policy in down["policies"]] == [True]


SCALER = "HorizontalPodAutoscaler"


@pytest.mark.parametrize("variant", ["default", "openshift"])
def test_quotas_are_divided_by_the_maximum_number_of_gateways(variant: str) -> None:
    scalers = of_kind(variant, SCALER)
    most = scalers["llm-gateway"]["spec"]["maxReplicas"] if scalers else 2
    assert environment(container_of(variant, "llm-gateway"))["HEADRACE_LLM_GATEWAY_REPLICAS"] == str(most)


def test_a_runtime_class_makes_the_tools_sandbox_external() -> None:
    spec = pods("openshift")["tools"]["spec"]
    assert spec["runtimeClassName"] == "gvisor"
    assert environment(spec["containers"][0])["HEADRACE_TOOLS_SANDBOX"] == "external"
    assert [name for name, pod in pods("openshift").items() if "runtimeClassName" in pod["spec"]] == ["tools"]


def test_pods_are_placed_as_the_values_say() -> None:
    found = pods("scheduling")
    for name, pod in found.items():
        spec, metadata = pod["spec"], pod["metadata"]
        assert (metadata["labels"]["team"], metadata["labels"]["cost"]) == ("agents", "shared")
        assert metadata["annotations"].items() >= {("sidecar.istio.io/inject", "false"), ("prometheus.io/port", "9464")}
        own = {"pool": "database"} if name == "memory" else {}
        assert spec["nodeSelector"] == {"kubernetes.io/arch": "amd64"} | own
        assert [item["key"] for item in spec["tolerations"]] == ["dedicated"]
        assert (spec["priorityClassName"], spec["affinity"].keys()) == ("important", {"nodeAffinity"})
        spread, own_spread = spec["topologySpreadConstraints"]
        assert own_spread["labelSelector"] == {"matchLabels": {"rack": "a"}}
        assert (spread["maxSkew"], spread["whenUnsatisfiable"]) == (2, "DoNotSchedule")
        assert spread["labelSelector"] == workloads("scheduling")[name]["spec"]["selector"]
    assert {item["metadata"]["annotations"]["contact"] for item in build_manifests("scheduling")} == {
        "agents@example.com"
    }
    accounts = of_kind("scheduling", "ServiceAccount")
    assert [name for name, item in accounts.items() if len(item["metadata"]["annotations"]) > 1] == ["memory"]
    assert of_kind("scheduling", "PodDisruptionBudget")["memory"]["spec"]["maxUnavailable"] == "50%"


def test_secrets_buckets_and_keys_follow_the_values() -> None:
    memory, tools = (pods("storage")[name]["spec"] for name in ("memory", "tools"))
    volumes = {volume["name"]: volume.get("secret", {}).get("secretName") for volume in memory["volumes"]}
    assert (volumes["tls"], volumes["api-keys"], volumes["master-keys"]) == (
        "memory-certificate",
        "keys",
        "master-keys",
    )
    env = {item["name"]: item for item in memory["containers"][0]["env"]}
    assert env["HEADRACE_DATABASE_URL"]["valueFrom"]["secretKeyRef"] == {"name": "pg", "key": "url"}
    assert env["HEADRACE_MEMORY_BLOBS"]["value"] == "s3://chats/headrace"
    assert env["AWS_ACCESS_KEY_ID"]["valueFrom"]["secretKeyRef"]["name"] == "chats-bucket"
    assert {"AWS_REGION", "HEADRACE_MEMORY_BLOBS"}.isdisjoint(environment(tools["containers"][0]))
    claim = of_kind("storage", "PersistentVolumeClaim")["workspaces"]["spec"]
    assert (claim["storageClassName"], claim["resources"]["requests"]["storage"]) == ("shared", "5Gi")


def test_extra_variables_volumes_and_files_follow_the_values() -> None:
    for name, pod in pods("more").items():
        assert pod["spec"]["imagePullSecrets"] == [{"name": "pull"}]
        for container in [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]:
            assert container["image"] == "images.example/headrace@sha256:" + "12" * 32
            assert container["envFrom"][-1] == {"configMapRef": {"name": "proxy"}}
            mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
            assert ("/etc/authority" in mounts, "/etc/approvals" in mounts) == (True, name == "orchestrator")
    assert of_kind("more", "ConfigMap")["agents"]["data"].keys() == {"clerk.json"}


def test_clients_reach_the_facade_through_an_ingress_or_a_route() -> None:
    spec = of_kind("edge", "Ingress")[""]["spec"]
    assert [rule["host"] for rule in spec["rules"]] == spec["tls"][0]["hosts"] == ["headrace.example", "agents.example"]
    (path,) = spec["rules"][0]["http"]["paths"]
    facade = of_kind("edge", "Service")["facade"]
    assert path["backend"]["service"] == {"name": facade["metadata"]["name"], "port": {"name": "http"}}
    # The gateway has the port that the facade has by itself.
    assert facade["spec"]["ports"][0]["targetPort"] == "http"
    ports = {item["name"]: item["ports"][0] for item in pods("edge")["facade"]["spec"]["containers"]}
    assert ports["gateway"] == {"name": "http", "containerPort": 8080}
    (rule,) = of_kind("observed", "HTTPRoute")[""]["spec"]["rules"]
    assert rule["backendRefs"] == [{"name": "headrace-facade", "port": 8080}]


def test_only_the_llm_gateway_gets_provider_keys() -> None:
    secrets = {
        container["name"]: [source["secretRef"]["name"] for source in container["envFrom"]]
        for container in containers("default")
        if "envFrom" in container
    }
    assert secrets == {"llm-gateway": ["headrace-provider-keys"]}
