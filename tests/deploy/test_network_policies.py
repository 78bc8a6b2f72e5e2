"""Network policies allow the calls of the architecture, from both ends, and nothing else between services."""

from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.deploy.manifests import VARIANTS, Manifest, build_manifests, containers, environment, needs_go, of_kind, pods
from tests.deploy.settings import PORTS, list_calls

pytestmark = needs_go

METRICS = 9464

Arrow = tuple[str, str, int]
"""Caller, callee, the callee's port."""


def select_pods(selector: dict[str, Any], variant: str = "default") -> set[str]:
    assert selector.keys() == {"matchLabels"}
    wanted = selector["matchLabels"].items()
    return {name for name, pod in pods(variant).items() if wanted <= pod["metadata"]["labels"].items()}


def list_allowed_calls(rules: str, peers: str) -> set[Arrow]:
    """Return the calls between pods that policies allow by their egress ("to") or ingress ("from") rules."""
    calls: set[Arrow] = set()
    for name, policy in of_kind("default", "NetworkPolicy").items():
        for rule in policy["spec"][rules]:
            for peer in rule.get(peers, ()):
                others = select_pods(peer["podSelector"]) if peer.keys() == {"podSelector"} else ()
                for other in others:
                    caller, callee = (name, other) if rules == "egress" else (other, name)
                    calls |= {(caller, callee, port["port"]) for port in rule["ports"]}
    return calls


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "openshift"])
def test_each_pod_has_one_policy_for_both_directions_that_selects_only_it(variant: str) -> None:
    policies = of_kind(variant, "NetworkPolicy")
    chosen = {name or "single": policy["spec"] for name, policy in policies.items() if name != "backup"}
    assert chosen.keys() == pods(variant).keys()
    for name, spec in chosen.items():
        assert select_pods(spec["podSelector"], variant) == {name}
    jobs = {item["kind"] for item in build_manifests(variant) if item["kind"] == "CronJob"}
    assert ("backup" in policies) == bool(jobs)
    for policy in policies.values():
        labels = policy["spec"]["podSelector"]["matchLabels"]
        assert labels.items() >= {("app.kubernetes.io/instance", "headrace"), ("app.kubernetes.io/name", "headrace")}
        # Without its type a rule has no effect, and traffic that no rule names is allowed.
        assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]


@pytest.mark.parametrize(("rules", "peers"), [("egress", "to"), ("ingress", "from")])
def test_services_reach_only_the_services_they_call(rules: str, peers: str) -> None:
    assert list_allowed_calls(rules, peers) == {(caller, callee, PORTS[callee]) for caller, callee in list_calls()}


def list_outside(variant: str) -> dict[str, list[int]]:
    """Return the ports of public addresses that each service may reach."""
    return {
        name: [port["port"] for port in rule["ports"]]
        for name, policy in of_kind(variant, "NetworkPolicy").items()
        for rule in policy["spec"].get("egress", ())
        if any(peer.get("ipBlock", {}).get("cidr") == "0.0.0.0/0" for peer in rule["to"])
    }


def test_only_services_with_external_peers_reach_public_addresses() -> None:
    both = [443, 8443]
    assert list_outside("default") == {"llm-gateway": [443], "tools": [443, 80], "memory": both, "orchestrator": both}
    assert list_outside("backups").keys() - list_outside("default").keys() == {"backup"}
    for policy in of_kind("default", "NetworkPolicy").values():
        for rule in policy["spec"]["egress"]:
            for peer in rule["to"]:
                if peer.get("ipBlock", {}).get("cidr") == "0.0.0.0/0":
                    # These include the cloud's metadata service, which hands out credentials.
                    private = {"169.254.0.0/16", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"}
                    assert private <= set(peer["ipBlock"]["except"])


def test_every_pod_reaches_the_clusters_dns() -> None:
    """On OpenShift, DNS has another namespace and its pods another port; a node-local cache is not a pod."""
    for variant in ("default", "single", "backups"):
        for policy in of_kind(variant, "NetworkPolicy").values():
            to = [
                (str(peer), port["port"])
                for rule in policy["spec"]["egress"]
                for peer in rule["to"]
                for port in rule["ports"]
            ]
            for where, number in (("kube-dns", 53), ("169.254.20.10/32", 53), ("openshift-dns", 5353)):
                assert [port for peer, port in to if where in peer] == [number] * 2, where


def test_services_that_accept_tokens_may_fetch_the_issuers_keys() -> None:
    ours = [item for item in containers("documented") if item["name"] != "gateway"]
    takers = {item["name"] for item in ours if "jwt" in environment(item)["HEADRACE_AUTH"]}
    # The gateway in Go passes credentials on; llm-gateway is called by services alone.
    assert takers == {"facade", "orchestrator", "memory", "tools"}
    assert takers <= {name for name, ports in list_outside("documented").items() if 443 in ports}
    for item in ours:
        given = {name for name in environment(item) if "JWT" in name or "JWKS" in name}
        assert len(given) == (3 if item["name"] in takers else 0)


def test_a_custom_egress_rule_is_added() -> None:
    own = {"to": [{"ipBlock": {"cidr": "192.0.2.20/32"}}], "ports": [{"port": 9000}]}
    having = [name for name, item in of_kind("storage", "NetworkPolicy").items() if own in item["spec"]["egress"]]
    assert having == ["memory"]


def test_policies_allow_the_configured_endpoint_for_spans() -> None:
    (target,) = {environment(item)["OTEL_EXPORTER_OTLP_ENDPOINT"] for item in containers("observed")}
    where = urlsplit(target)
    assert where.hostname is not None
    for policy in of_kind("observed", "NetworkPolicy").values():
        rule = policy["spec"]["egress"][-1]
        (peer,) = rule["to"]
        namespace = peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
        assert (namespace, rule["ports"]) == (where.hostname.partition(".")[2], [{"port": where.port}])


def test_policies_do_not_open_the_port_for_probes() -> None:
    opened = {
        port["port"]
        for policy in of_kind("default", "NetworkPolicy").values()
        for rule in policy["spec"]["ingress"]
        for port in rule["ports"]
    }
    assert opened == {*PORTS.values(), METRICS}


def test_only_memory_and_the_backup_reach_the_database() -> None:
    def reaches(policy: Manifest) -> bool:
        return any(rule["ports"] == [{"port": 5432}] for rule in policy["spec"]["egress"])

    found = of_kind("backups", "NetworkPolicy")
    assert {name for name, policy in found.items() if reaches(policy)} == {"memory", "backup"}
