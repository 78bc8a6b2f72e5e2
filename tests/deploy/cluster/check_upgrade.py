"""From an earlier version to this one and back, with runs that go on.

HEADRACE_UPGRADE_FROM names the commit; without it, the last tag of a version.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.deploy.cluster.check_restarts import STREAMS, assert_nothing_lost
from tests.deploy.cluster.database import ask_database
from tests.deploy.cluster.installs import SERVICES, Install, install_prod, prod_items, remove_prod
from tests.deploy.cluster.kube import apply, await_true, export_image, run_cluster
from tests.deploy.cluster.loading import Seen, asking
from tests.deploy.image.build import build_image
from tests.deploy.manifests import ROOT

NAMESPACE = "earlier"


def find_earlier() -> str:
    tag = ["git", "describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD"]
    last = subprocess.run(tag, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    return os.environ.get("HEADRACE_UPGRADE_FROM") or last


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """The earlier version."""
    commit = find_earlier()
    if not commit:
        pytest.skip("NOTICE: there is no tag v*, and HEADRACE_UPGRADE_FROM is not set: no upgrade is tried")
    folder = tmp_path_factory.mktemp("earlier") / "checkout"
    subprocess.run(["git", "worktree", "add", "--quiet", "--detach", folder, commit], cwd=ROOT, check=True)
    try:
        yield folder
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", folder], cwd=ROOT, check=True)


@pytest.fixture(scope="module")
def earlier(prod: Install, checkout: Path) -> Generator[Install]:
    """Its images and manifests, in a namespace of their own beside a cluster that has this version's image."""
    archive = export_image(build_image(checkout, "localhost/headrace:earlier"), "headrace:0.0.9")
    run_cluster("load", str(archive))
    install = install_prod(NAMESPACE, checkout=checkout, image_tag="0.0.9")
    yield install
    remove_prod(install)


def tables_version() -> int:
    return int(ask_database(NAMESPACE, "SELECT max(version) FROM headrace_version"))


def assert_unharmed(*seen: Seen) -> None:
    for one in seen:
        assert_nothing_lost(one)
        assert one.refused == {}
        assert max(one.attaches) <= 1


def test_an_upgrade_and_the_way_back_fail_nothing(earlier: Install, checkout: Path) -> None:
    before = tables_version()
    with asking(earlier, STREAMS) as quick, asking(earlier, STREAMS, "slow") as slow:
        # As docs/operating/upgrade.md says: memory first, then all of it.
        earlier.kubectl("set", "image", "deployment/memory", "*=headrace:0.1.0")
        earlier.wait_rolled_out("memory")
        apply(*prod_items(NAMESPACE, ROOT, "0.1.0"))
        earlier.wait_rolled_out()
        earlier.wait_gone()
    assert_unharmed(quick, slow)
    assert images(earlier) == {"headrace:0.1.0"}
    with asking(earlier, STREAMS) as quick, asking(earlier, STREAMS, "slow") as slow:
        others = [it for it in SERVICES if it != "memory"]
        for service in others:
            kind = "statefulset" if service == "orchestrator" else "deployment"
            earlier.kubectl("set", "image", f"{kind}/{service}", "*=headrace:0.0.9")
        earlier.wait_rolled_out(*others)
        earlier.wait_gone()
        if tables_version() != before:
            # Tables of a later version are not for it: it says so, and those that serve go on.
            earlier.kubectl("set", "image", "deployment/memory", "*=headrace:0.0.9")
            await_true("memory's new pod is refused", lambda: is_refused(earlier))
            earlier.kubectl("rollout", "undo", "deployment/memory")
            earlier.wait_rolled_out("memory")
    assert_unharmed(quick, slow)


def images(install: Install) -> set[str]:
    return {it["image"] for service in SERVICES for pod in install.pods(service) for it in pod["spec"]["containers"]}


def is_refused(install: Install) -> bool:
    """Whether a pod's first container ended with the code for what a person has to mend."""
    found = [it for pod in install.pods("memory") for it in pod["status"].get("initContainerStatuses", [])]
    ends = [it[name].get("terminated", {}) for it in found for name in ("state", "lastState") if name in it]
    return any(it.get("exitCode") == 78 for it in ends)
