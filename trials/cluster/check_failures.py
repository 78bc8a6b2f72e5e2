"""A refused configuration, an unavailable database, and how they are reported."""

import json
import re
import time
from typing import Any

from trials.cluster.database import start_database, stop_database
from trials.cluster.installs import PROVIDERS, UPGRADE, Install
from trials.cluster.kube import await_true, run_cluster
from trials.cluster.loading import asking

SYNC_S = 180.0
"""Time for the kubelet to update a changed ConfigMap in pods."""

AWAY_S = 60.0

BACK_S = 15.0


def test_a_broken_configuration_stops_the_rollout_and_serving_goes_on(prod: Install) -> None:
    before = {item["metadata"]["uid"] for item in prod.pods("llm-gateway")}
    broken = json.loads(json.dumps(PROVIDERS))
    broken["providers"][0]["protocol"] = "opnai"
    prod.write_values(providers=broken)
    prod.operator.run(UPGRADE)
    try:
        with asking(prod, 2) as seen:
            await_true("the alert's metric", lambda: refused_files(prod) == len(before), SYNC_S)
            prod.kubectl("rollout", "restart", "deployment/headrace-llm-gateway")
            await_true(
                "the new pod stays at its check", lambda: any(map(is_stopped_by_its_check, prod.pods("llm-gateway")))
            )
            serving = {item["metadata"]["uid"] for item in prod.pods("llm-gateway") if is_ready(item)}
            assert serving == before
            assert prod.ask()[0] == 200
        assert (seen.ends.keys(), seen.refused) == ({"run.complete"}, {})
        prod.operator.follow("when-it-breaks.md", "See what is refused")
    finally:
        prod.write_values()
        prod.operator.follow("when-it-breaks.md", "Correct it")
    await_true("nothing is refused any more", lambda: refused_files(prod) == 0, SYNC_S)
    assert prod.ask()[0] == 200


def refused_files(install: Install) -> int:
    """Return the number of ready pods that count a refused file, by the metric of HeadraceConfigurationRefused."""
    return sum(
        any(float(value) for value in re.findall(r"(?m)^headrace_refused_files\{.*\} (\S+)$", read_metrics(pod)))
        for pod in install.pods("llm-gateway")
        if is_ready(pod)
    )


def read_metrics(pod: dict[str, Any]) -> str:
    return run_cluster("enter", "curl", "-s", "-m", "20", f"http://{pod['status']['podIP']}:9464/metrics")


def is_ready(pod: dict[str, Any]) -> bool:
    return any(item["type"] == "Ready" and item["status"] == "True" for item in pod["status"].get("conditions", []))


def is_stopped_by_its_check(pod: dict[str, Any]) -> bool:
    (check,) = pod["status"].get("initContainerStatuses", [{}])
    state = check.get("state", {}) | check.get("lastState", {})
    return "waiting" in check.get("state", {}) and state.get("terminated", {}).get("exitCode") == 1


def test_without_its_database_the_suite_says_overloaded_and_comes_back_by_itself(prod: Install) -> None:
    stop_database()
    try:
        end = time.monotonic() + AWAY_S
        answers = list[tuple[int, str]]()
        while time.monotonic() < end:
            answers.append(prod.ask())
            # All facades remain available to clients.
            assert all(map(is_ready, prod.pods("facade")))
    finally:
        start_database()
    begin = time.monotonic()
    prod.operator.follow("when-it-breaks.md", "The database is away")
    assert prod.ask()[0] == 200
    back = time.monotonic() - begin
    assert {status for status, _ in answers} == {503}, answers[0]
    assert all(re.search(r"(?mi)^retry-after: \d+", item) and "OVERLOADED" in item for _, item in answers), answers[0]
    assert back <= BACK_S


def test_certificates_are_issued_anew_under_load(prod: Install) -> None:
    before = min(map(expiry, prod.pods("memory")))
    with asking(prod, 2) as seen:
        # From the same authority; the operator has kept its folder.
        prod.operator.follow("when-it-breaks.md", "Certificates expire")
        await_true("pods have the new ones", lambda: min(map(expiry, prod.pods("memory"))) > before, SYNC_S)
    assert (seen.ends.keys(), seen.refused) == ({"run.complete"}, {})


def expiry(pod: dict[str, Any]) -> float:
    """Return the earliest expiry of the pod's certificates, from its metrics."""
    found = re.findall(r"(?m)^headrace_certificate_expires_timestamp_seconds(?:\{.*\})? (\S+)$", read_metrics(pod))
    return min(map(float, found))
