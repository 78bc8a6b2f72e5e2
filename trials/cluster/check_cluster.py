"""`python -m trials cluster`: runs the chart on a real Kubernetes cluster and disturbs it.

It needs root, Debian's packages, ten minutes for the first compilation, and an otherwise idle machine.
KEEP_CLUSTER=1 keeps the cluster running, and reuses a running one.
"""

import resource
import sys
from pathlib import Path

import pytest

from trials.cluster.installs import SERVICES, Install, add_volume
from trials.cluster.kube import find_processes, kubectl, name_missing_programs
from trials.cluster.pages import Operator, make_folder
from trials.image.container import REST_BYTES_MAX

pytestmark = pytest.mark.skipif(
    bool(name_missing_programs()), reason=f"NOTICE: not here: {', '.join(name_missing_programs())}"
)


def test_one_pod_is_tried_and_removed(cluster: None) -> None:
    operator = Operator(make_folder("try"))
    add_volume("try", "try", "data-headrace-0", "ReadWriteOnce")
    operator.follow("install.md", "On Kubernetes, to try it")
    operator.follow("install.md", "Remove it")
    kubectl("delete", "persistentvolume", "try")


def test_services_of_prod_rest_within_their_size(prod: Install) -> None:
    """Checked before any question: in a kept cluster, memory holds the vocabulary for some minutes."""
    found = {
        f"{service} {number}": int(Path(f"/proc/{number}/statm").read_text().split()[1]) * resource.getpagesize()
        for service in SERVICES
        for pod in prod.pods(service)
        for number in find_processes(pod["metadata"]["uid"], service)
    }
    sys.stdout.write(f"{found}\n")
    assert len(found) >= 2 * len(SERVICES)
    assert {name: size for name, size in found.items() if size > REST_BYTES_MAX} == {}


def test_prod_answers_a_question(prod: Install) -> None:
    prod.operator.follow("install.md", "5. Ask")
    prod.operator.follow("when-it-breaks.md", "First")


def test_prod_answers_a_question_through_its_service(prod: Install) -> None:
    status, body = prod.ask()
    assert status == 200, body
    assert body.count('"type":"content.delta"') > 3
    assert '"type":"run.complete"' in body
