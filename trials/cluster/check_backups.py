"""The nightly backup, made immediately and restored into an empty installation."""

import re
from collections.abc import Generator
from dataclasses import replace

import pytest

from trials.cluster.database import add_client_image, add_database
from trials.cluster.installs import Install, add_volume, install_prod, remove_prod
from trials.cluster.kube import await_true, kubectl, run_cluster

NAMESPACE = "nightly"


@pytest.fixture(scope="module")
def nightly(prod: Install) -> Generator[Install]:
    add_client_image()
    add_volume(f"{NAMESPACE}-backups", NAMESPACE, "headrace-backups", "ReadWriteOnce")
    install = install_prod(NAMESPACE, backup={"enabled": True})
    yield install
    remove_prod(install)
    kubectl("delete", "persistentvolume", f"{NAMESPACE}-backups")


def test_agents_of_the_values_answer(nightly: Install) -> None:
    for agent in ("assistant", "clerk"):
        status, body = nightly.ask(agent=agent)
        assert (status, '"type":"run.complete"' in body) == (200, True), body


def test_a_nightly_backup_is_restored_where_nothing_is(nightly: Install) -> None:
    for _ in range(3):
        assert nightly.ask()[0] == 200
    _, before = nightly.list_chats(50)
    output = nightly.operator.follow("backup.md", "Every night on Kubernetes")
    (file,) = re.findall(r"\S+\.tar$", output, re.M)
    later = nightly.ask()[0], nightly.list_chats(50)[1] - before
    empty(nightly)
    words = {**nightly.operator.words, "2026-11-21T03-17-04.tar": file}
    operator = replace(nightly.operator, words=words)
    operator.follow("backup.md", "Restore one of them")
    nightly.wait_rolled_out()
    assert (nightly.list_chats(50)[1], later[0], len(later[1])) == (before, 200, 1)
    assert nightly.ask()[0] == 200


def empty(install: Install) -> None:
    """Empty the database and the volume, and stop all pods."""
    install.kubectl("scale", "deployment,statefulset", "--all", "--replicas", "0")
    await_true("nothing runs", lambda: not [item for item in install.get("pods")["items"] if not is_done(item)])
    add_database(install.namespace)
    run_cluster("enter", "find", f"/run/volumes/{install.namespace}", "-mindepth", "1", "-delete")


def is_done(pod: dict[str, dict[str, str]]) -> bool:
    return pod["status"].get("phase") == "Succeeded"
