"""The world outside of the suite: simulated models, in their own namespace."""

from trials.cluster.installs import SIMULATOR
from trials.cluster.kube import IMAGE, apply, kubectl


def install_simulator() -> None:
    container = {
        "name": "simulator",
        "image": IMAGE,
        "args": ["python", "-m", "services.simulator", "--host", "0.0.0.0", "--port", "7005"],
    }
    at = {"namespace": SIMULATOR, "name": "simulator"}
    pod = {"containers": [container], "enableServiceLinks": False, "automountServiceAccountToken": False}
    apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SIMULATOR, "labels": {"name": SIMULATOR}}})
    apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": at | {"labels": {"app": "simulator"}}, "spec": pod},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": at,
            "spec": {"clusterIP": "None", "selector": {"app": "simulator"}, "ports": [{"port": 7005}]},
        },
    )
    kubectl("-n", SIMULATOR, "wait", "--for=condition=Ready", "pod/simulator", "--timeout=300s")
