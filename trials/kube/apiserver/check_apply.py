"""`python -m trials kube`: a real API server takes the manifests, and its pod security the pods. To
compile the server takes minutes.
"""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from tests.deploy.manifests import VARIANTS, build_manifests, of_kind, pods
from trials.kube.apiserver.cluster import Api, cluster

pytestmark = pytest.mark.asyncio(loop_scope="module")

PREREQUISITES: list[dict[str, Any]] = [
    {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "headrace", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    },
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "headrace"}},
    {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "gvisor"}, "handler": "runsc"},
    {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "important"}, "value": 1000},
]
"""Objects that a cluster's administrators and controllers make."""

CUSTOM = ("HTTPRoute", "PrometheusRule", "ServiceMonitor")
"""Kinds that the server does not know without their definitions; tests/deploy/test_manifests.py checks them."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Api]:
    async with cluster(tmp_path_factory.mktemp("cluster")) as api:
        accounts = [item for variant in VARIANTS for item in of_kind(variant, "ServiceAccount").values()]
        for item in [*PREREQUISITES, *accounts]:
            answer = await api.apply(item, dry_run=False)
            assert answer.status in (200, 201), answer.body
        yield api


@pytest.mark.parametrize("variant", VARIANTS)
async def test_the_server_takes_every_object_and_has_nothing_to_say(api: Api, variant: str) -> None:
    answers = {
        f"{item['kind']} {item['metadata']['name']}": await api.apply(item, dry_run=True)
        for item in build_manifests(variant)
        if item["kind"] not in CUSTOM
    }
    assert {name: entry.body["message"] for name, entry in answers.items() if entry.status not in (200, 201)} == {}
    assert {name: entry.warnings for name, entry in answers.items() if entry.warnings} == {}


@pytest.mark.parametrize("variant", VARIANTS)
async def test_pod_security_lets_the_pods_in(api: Api, variant: str) -> None:
    for name, template in pods(variant).items():
        answer = await api.create(pod(name, template))
        assert answer.status == 201, answer.body["message"]


async def test_pod_security_is_in_force(api: Api) -> None:
    item = pod("tools", pods("default")["tools"])
    del item["spec"]["securityContext"]
    answer = await api.create(item)
    assert (answer.status, answer.body["reason"]) == (403, "Forbidden")
    assert "violates PodSecurity" in answer.body["message"]


async def test_a_field_that_there_is_not_is_refused(api: Api) -> None:
    item = of_kind("default", "Deployment")["tools"]
    answer = await api.apply(item | {"spec": item["spec"] | {"replica": 2}}, dry_run=True)
    assert answer.status in (400, 500)
    assert "replica" in answer.body["message"]


def pod(name: str, template: dict[str, Any]) -> dict[str, Any]:
    """The pod that a controller would make; volumes from claims of a StatefulSet are left to it."""
    claimed = {mount["name"] for entry in template["spec"]["containers"] for mount in entry["volumeMounts"]}
    claimed -= {volume["name"] for volume in template["spec"]["volumes"]}
    volumes = [*template["spec"]["volumes"], *({"name": entry, "emptyDir": {}} for entry in sorted(claimed))]
    metadata = template["metadata"] | {"name": name, "namespace": "headrace"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"] | {"volumes": volumes}}
