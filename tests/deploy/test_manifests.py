"""The manifests are what Kubernetes publishes as its objects' form, field by field."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.deploy.manifests import VARIANTS, Manifest, build_manifests, needs_go, of_kind, pods, workloads
from tests.deploy.schemas import validator

pytestmark = needs_go


def problems(item: Manifest) -> list[str]:
    found = validator(item["apiVersion"], item["kind"]).iter_errors(item)
    return [f"{item['kind']} {item['metadata']['name']}: {error.instance_path}: {error.message}" for error in found]


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_object_has_the_published_form(variant: str) -> None:
    assert [problem for item in build_manifests(variant) for problem in problems(item)] == []


def test_a_field_that_there_is_not_is_found() -> None:
    misspelt = copy.deepcopy(workloads("prod")["tools"])
    misspelt["spec"]["template"]["spec"]["runtimeClass"] = "gvisor"
    assert ["runtimeClass" in problem for problem in problems(misspelt)] == [True]


def test_dev_is_one_pod_and_prod_one_workload_for_each_service() -> None:
    services = {"facade", "orchestrator", "llm-gateway", "memory", "tools"}
    (suite,) = pods("dev").values()
    assert {container["name"] for container in suite["spec"]["containers"]} == services | {"simulator"}
    assert {name: [item["name"] for item in pod["spec"]["containers"]] for name, pod in pods("prod").items()} == {
        name: [name] for name in services
    }


@pytest.mark.parametrize("variant", VARIANTS)
def test_everything_is_in_the_namespace(variant: str) -> None:
    (name,) = of_kind(variant, "Namespace")
    assert name == ("second" if variant == "second" else "headrace")
    assert {item["metadata"].get("namespace") for item in build_manifests(variant) if item["kind"] != "Namespace"} == {
        name
    }


def test_nothing_in_a_second_namespace_names_the_first() -> None:
    first = re.compile(r"(?<![\w/])headrace(?=\.(svc|cluster)|\b\s*$)|\.headrace\b|spiffe://headrace")
    named = {
        text: item["metadata"]["name"]
        for item in build_manifests("second")
        for text in texts(item)
        if first.search(text)
    }
    assert named == {}


def texts(value: Any) -> Iterator[str]:
    """Every text in an object, but those that say what program it is."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name not in ("image", "args"):
                yield from texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize("variant", VARIANTS)
def test_secrets_are_named_and_not_contained(variant: str) -> None:
    assert [item["metadata"]["name"] for item in build_manifests(variant) if item["kind"] == "Secret"] == []
