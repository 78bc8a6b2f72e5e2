"""The chart, installed with helm, and its nightly backup, made immediately and restored into an empty
installation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from dataclasses import replace

import pytest

from trials.cluster.database import add_client_image, add_database
from trials.cluster.installs import PROVIDERS, Install, add_volume, open_models, prepare_prod, remove_prod
from trials.cluster.kube import HOST, VERSION, apply, await_true, kubectl, run_cluster

NAMESPACE = "charted"

WORDS = {
    "--namespace headrace": f"--namespace {NAMESPACE}",
    "--values ours.yaml": "--values ours.yaml --values more.yaml",
}

SMALL = {"resources": {"requests": {"cpu": "10m"}}}

VALUES = {
    "config": {"providers": {"providers.json": json.dumps(PROVIDERS)}},
    **dict.fromkeys(("facade", "llmGateway", "memory", "tools", "orchestrator"), SMALL),
}
"""Models available in the cluster, and resource requests that fit a small machine."""

OPEN_DATABASE = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "own-database-of-backups", "namespace": NAMESPACE},
    "spec": {
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "backup"}},
        "policyTypes": ["Egress"],
        "egress": [{"to": [{"ipBlock": {"cidr": f"{HOST}/32"}}], "ports": [{"port": 5432}]}],
    },
}


@pytest.fixture(scope="module")
def charted(prod: Install) -> Generator[Install]:
    add_client_image()
    install = prepare_prod(NAMESPACE, words=WORDS)
    add_volume(f"{NAMESPACE}-backups", NAMESPACE, "backups", "ReadWriteOnce")
    apply(open_models(NAMESPACE), OPEN_DATABASE)
    (install.operator.folder / "more.yaml").write_text(json.dumps(VALUES))
    install.operator.follow("install.md", "With Helm")
    install.wait_scaled()
    install.wait_rolled_out()
    yield install
    remove_prod(install)
    kubectl("delete", "persistentvolume", f"{NAMESPACE}-backups")


def test_a_release_of_the_chart_answers_a_question(charted: Install) -> None:
    for agent in ("assistant", "clerk"):
        status, said = charted.ask(agent=agent)
        assert (status, '"type":"run.complete"' in said) == (200, True), said


def test_a_nightly_backup_is_restored_where_nothing_is(charted: Install) -> None:
    for _ in range(3):
        assert charted.ask()[0] == 200
    _, before = charted.list_chats(50)
    said = charted.operator.follow("backup.md", "Every night on Kubernetes")
    (file,) = re.findall(r"\S+\.tar$", said, re.M)
    later = charted.ask()[0], charted.list_chats(50)[1] - before
    empty(charted)
    words = {**charted.operator.words, "2026-11-21T03-17-04.tar": file, "VERSION": VERSION}
    operator = replace(charted.operator, words=words)
    operator.follow("backup.md", "Restore one of them")
    charted.wait_rolled_out()
    assert (charted.list_chats(50)[1], later[0], len(later[1])) == (before, 200, 1)
    assert charted.ask()[0] == 200


def empty(install: Install) -> None:
    """Empty the database and the volume, and stop all pods."""
    install.kubectl("scale", "deployment,statefulset", "--all", "--replicas", "0")
    await_true("nothing runs", lambda: not [item for item in install.get("pods")["items"] if not is_done(item)])
    add_database(install.namespace)
    run_cluster("enter", "find", f"/run/volumes/{install.namespace}", "-mindepth", "1", "-delete")


def is_done(pod: dict[str, dict[str, str]]) -> bool:
    return pod["status"].get("phase") == "Succeeded"
