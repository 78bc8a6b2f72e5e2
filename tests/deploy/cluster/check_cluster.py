"""`make cluster-check`: both overlays on a real Kubernetes, and what it does to them. Not part of the suite: it takes
root, Debian's packages, ten minutes of compiling where it never was done, and the machine for itself.

KEEP_CLUSTER=1 leaves the cluster up, and takes one that is up as it is; HEADRACE_IMAGE names an image that build/image
has already.
"""

from __future__ import annotations

import pytest

from tests.deploy.cluster.installs import Install, install_dev
from tests.deploy.cluster.kube import kubectl, name_missing_programs

pytestmark = pytest.mark.skipif(
    bool(name_missing_programs()), reason=f"NOTICE: not here: {', '.join(name_missing_programs())}"
)


def test_dev_answers_a_question_through_its_service(cluster: None) -> None:
    dev = install_dev()
    status, said = dev.ask()
    assert status == 200
    assert said.count('"type":"content.delta"') > 3
    assert '"type":"run.complete"' in said
    kubectl("delete", "namespace", "headrace", "--timeout=300s")
    kubectl("delete", "persistentvolume", "dev")


def test_prod_answers_a_question_through_its_service(prod: Install) -> None:
    status, said = prod.ask()
    assert status == 200, said
    assert said.count('"type":"content.delta"') > 3
    assert '"type":"run.complete"' in said
