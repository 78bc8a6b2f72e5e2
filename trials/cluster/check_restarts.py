"""The effect of a restart, a kill and a drain on active streams."""

import os
import signal
import subprocess
import time

from trials.cluster.installs import SERVICES, Install
from trials.cluster.kube import FOLDER, HERE, await_true, find_processes, kubectl
from trials.cluster.loading import Seen, asking

STREAMS = 4
"""Number of streams of each kind: fast answers, and answers that take ten seconds."""


def assert_nothing_lost(seen: Seen) -> None:
    assert seen.ends.keys() == {"run.complete"}, seen.problems


def test_a_rolling_restart_of_everything_fails_nothing(prod: Install) -> None:
    with asking(prod, STREAMS) as seen, asking(prod, STREAMS, "slow") as slow:
        prod.operator.follow("scale.md", "Restart everything")
        prod.wait_rolled_out()
        prod.wait_gone()
    for one in (seen, slow):
        assert_nothing_lost(one)
        assert one.refused == {}
        assert max(one.attaches) <= 1
        assert one.ends["run.complete"] > STREAMS


def test_kill_9_of_one_of_each_loses_nothing(prod: Install) -> None:
    with asking(prod, STREAMS) as seen, asking(prod, STREAMS, "slow") as slow:
        for service in SERVICES:
            kill(prod.pods(service)[0]["metadata"]["uid"], service)
            time.sleep(3)
        prod.wait_rolled_out()
        await_true("all containers are ready", lambda: all(is_ready(prod, service) for service in SERVICES))
    assert_nothing_lost(seen)
    assert_nothing_lost(slow)
    # A facade that is gone stays in the Service until the kubelet notices; connections to it are refused.
    assert {item for item in seen.refused | slow.refused if "Client" not in item and "Server" not in item} == set()


def kill(pod_uid: str, service: str) -> None:
    """Kill the service's processes as the kernel's out-of-memory killer would."""
    killed = find_processes(pod_uid, service)
    for number in killed:
        os.kill(number, signal.SIGKILL)
    assert killed, service


def is_ready(install: Install, service: str) -> bool:
    pods = install.pods(service)
    return bool(pods) and all(
        item["ready"] for pod in pods for item in pod["status"].get("containerStatuses", [{"ready": 0}])
    )


def test_a_drained_node_keeps_what_the_budgets_say(prod: Install) -> None:
    """The only node accepts pods again at once, while its old pods are evicted one after another."""
    before = {service: {item["metadata"]["uid"] for item in prod.pods(service)} for service in SERVICES}
    ready: dict[str, list[int]] = {service: [] for service in SERVICES}
    command = [HERE / "cluster", "kubectl", "drain", "node-1", "--pod-selector", "app.kubernetes.io/name=headrace"]
    with asking(prod, STREAMS) as seen:
        drain = subprocess.Popen(
            [*command, "--delete-emptydir-data", "--timeout=900s"],
            env=os.environ | {"CLUSTER": str(FOLDER)},
            stdout=subprocess.DEVNULL,
        )
        try:
            await_true(
                "the node is cordoned", lambda: "unschedulable" in kubectl("get", "node", "node-1", "-o", "json")
            )
            kubectl("uncordon", "node-1")
            while drain.poll() is None:
                for budget in prod.get("poddisruptionbudgets")["items"]:
                    ready[budget["metadata"]["labels"]["app.kubernetes.io/component"]].append(
                        budget["status"]["currentHealthy"]
                    )
                time.sleep(0.5)
        finally:
            drain.kill()
            drain.wait()
        prod.wait_rolled_out()
        prod.wait_gone()
    assert drain.returncode == 0
    assert {service: min(ready[service]) >= len(before[service]) - 1 for service in SERVICES} == dict.fromkeys(
        SERVICES, True
    )
    for service in SERVICES:
        assert before[service].isdisjoint({item["metadata"]["uid"] for item in prod.pods(service)})
    assert_nothing_lost(seen)
    assert seen.refused == {}
