"""The network allows the arrows of the architecture, from both ends, and nothing else between services."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.deploy.manifests import VARIANTS, Manifest, containers, environment, needs_go, of_kind, pods
from tests.deploy.settings import PORTS, arrows

pytestmark = needs_go

METRICS = 9464

Arrow = tuple[str, str, int]
"""Caller, callee, the callee's port."""


def selected(selector: dict[str, Any], variant: str = "prod") -> set[str]:
    assert selector.keys() <= {"matchLabels"}
    wanted = selector.get("matchLabels", {}).items()
    return {name for name, pod in pods(variant).items() if wanted <= pod["metadata"]["labels"].items()}


def between(policies: list[Manifest], rules: str, peers: str) -> set[Arrow]:
    """What policies allow between pods of the suite, by their egress ("to") or ingress ("from") rules."""
    found: set[Arrow] = set()
    for spec in (policy["spec"] for policy in policies):
        for rule in spec.get(rules, ()):
            others = {
                name
                for peer in rule.get(peers, ())
                if peer.keys() == {"podSelector"}
                for name in selected(peer["podSelector"])
            }
            for own in selected(spec["podSelector"]):
                for other in others:
                    caller, callee = (own, other) if rules == "egress" else (other, own)
                    found |= {(caller, callee, port["port"]) for port in rule["ports"]}
    return found


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_no_policy_opens_is_closed(variant: str) -> None:
    spec = of_kind(variant, "NetworkPolicy")["default-deny"]["spec"]
    assert spec == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


@pytest.mark.parametrize(("rules", "peers"), [("egress", "to"), ("ingress", "from")])
def test_services_reach_those_they_call_and_no_others(rules: str, peers: str) -> None:
    policies = list(of_kind("prod", "NetworkPolicy").values())
    assert between(policies, rules, peers) == {(caller, callee, PORTS[callee]) for caller, callee in arrows()}


def test_a_policy_has_the_types_of_its_rules() -> None:
    # Without its type a rule does nothing.
    for name, policy in of_kind("prod", "NetworkPolicy").items():
        spec = policy["spec"]
        if name != "default-deny":
            assert {kind.lower() for kind in spec["policyTypes"]} == spec.keys() & {"ingress", "egress"}, name


def test_outside_of_the_cluster_are_only_models_agents_the_web_and_webhooks() -> None:
    open_to_the_world = {
        name: [port["port"] for port in rule["ports"]]
        for name, policy in of_kind("prod", "NetworkPolicy").items()
        for rule in policy["spec"].get("egress", ())
        if any("ipBlock" in peer for peer in rule["to"])
    }
    both = [443, 8443]
    assert open_to_the_world == {"model-providers": [443], "web": [443, 80], "webhooks": both, "remote-agents": both}
    for name in open_to_the_world:
        (rule,) = of_kind("prod", "NetworkPolicy")[name]["spec"]["egress"]
        (ipv4,) = (peer["ipBlock"] for peer in rule["to"] if peer["ipBlock"]["cidr"] == "0.0.0.0/0")
        # The cloud's metadata service, which gives out credentials, among them.
        assert {"169.254.0.0/16", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"} <= set(ipv4["except"])


def test_tokens_are_taken_where_their_issuers_keys_can_be_fetched() -> None:
    takers = {item["name"] for item in containers("own") if "jwt" in environment(item).get("HEADRACE_AUTH", "")}
    # The gateway in Go passes credentials on; llm-gateway is called by services alone.
    assert takers == {"facade", "orchestrator", "memory", "tools"}
    open_at_443 = {
        name
        for policy in of_kind("own", "NetworkPolicy").values()
        for rule in policy["spec"].get("egress", ())
        if any("ipBlock" in peer for peer in rule["to"]) and {"port": 443} in rule["ports"]
        for name in selected(policy["spec"]["podSelector"], "own")
    }
    assert takers <= open_at_443
    for item in containers("own"):
        if item["name"] in takers:
            sources = {
                variable["name"]: variable["valueFrom"]["configMapKeyRef"]
                for variable in item["env"]
                if "jwt" in variable["name"].lower()
            }
            assert sources.keys() == {"HEADRACE_AUTH_JWT_ISSUER", "HEADRACE_AUTH_JWT_AUDIENCE"}
            (name,) = {source["name"] for source in sources.values()}
            assert name in of_kind("own", "ConfigMap")


def test_spans_go_where_a_policy_lets_them() -> None:
    services = [item for item in containers("own") if item["name"] != "gateway"]  # it has no spans of its own
    (target,) = {environment(item).get("OTEL_EXPORTER_OTLP_ENDPOINT") for item in services}
    assert target is not None
    where = urlsplit(target)
    assert where.hostname is not None
    (rule,) = of_kind("own", "NetworkPolicy")["traces"]["spec"]["egress"]
    (peer,) = rule["to"]
    assert peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] == where.hostname.partition(".")[2]
    assert rule["ports"] == [{"port": where.port}]


def test_nothing_but_the_kubelet_reaches_what_answers_without_a_certificate() -> None:
    opened = {
        port["port"]
        for policy in of_kind("prod", "NetworkPolicy").values()
        for rule in policy["spec"].get("ingress", ())
        for port in rule["ports"]
    }
    assert opened == {*PORTS.values(), METRICS}


def test_only_memory_reaches_the_database() -> None:
    database = of_kind("prod", "NetworkPolicy")["database"]["spec"]
    assert selected(database["podSelector"]) == {"memory"}
