"""A cluster for the checks: compiled programs, a loaded image, and working DNS."""

import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager

from trials.cluster.kube import (
    COMPILE_TIMEOUT_S,
    DNS,
    FOLDER,
    HERE,
    HOST,
    IMAGE,
    apply,
    await_true,
    get,
    kubectl,
    run_cluster,
)
from trials.cluster.pages import Operator, make_folder


@contextmanager
def running_cluster() -> Generator[None]:
    """Run a cluster with the image of this checkout, and nothing installed."""
    keep = bool(os.environ.get("KEEP_CLUSTER"))
    if keep and (FOLDER / "run" / "holder.pid").exists():
        yield
        return
    (FOLDER / "bin").mkdir(parents=True, exist_ok=True)
    subprocess.run([HERE / "compile", FOLDER / "bin"], check=True, timeout=COMPILE_TIMEOUT_S)
    run_cluster("down")
    run_cluster("up")
    try:
        Operator(make_folder("image")).follow("install.md", "The image")
        install_dns()
        yield
    finally:
        if not keep:
            run_cluster("down")


def install_dns() -> None:
    """Install DNS where the network policies expect it: at kube-system pods with the label k8s-app: kube-dns."""
    state = FOLDER / "run"
    tokens = dict(line.split(",")[1::-1] for line in (state / "tokens.csv").read_text().splitlines())
    at = {"namespace": "kube-system", "name": "kube-dns"}
    labels = {"k8s-app": "kube-dns"}
    files = {
        "dns.py": (HERE / "dns.py").read_text(),
        "token": tokens["dns"],
        "ca.crt": (state / "apiserver" / "apiserver.crt").read_text(),
    }
    container = {
        "name": "dns",
        "image": IMAGE,
        "command": ["python", "/etc/dns/dns.py", f"https://{HOST}:6443", "/etc/dns"],
        "securityContext": {"runAsUser": 0},
        "volumeMounts": [{"name": "files", "mountPath": "/etc/dns"}],
        "readinessProbe": {"tcpSocket": {"port": 53}, "periodSeconds": 1},
    }
    pod = {"containers": [container], "enableServiceLinks": False, "dnsPolicy": "Default"}
    pod |= {"volumes": [{"name": "files", "secret": {"secretName": "kube-dns"}}], "automountServiceAccountToken": False}
    ports = [{"name": protocol.lower(), "port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
    apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": at, "stringData": files},
        {"apiVersion": "v1", "kind": "Pod", "metadata": at | {"labels": labels}, "spec": pod},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": at,
            "spec": {"clusterIP": DNS, "selector": labels, "ports": ports},
        },
    )
    await_true("a service account of kube-system", lambda: bool(get("pods", "-n", "kube-system")["items"]))
    kubectl("-n", "kube-system", "wait", "--for=condition=Ready", "pod/kube-dns", "--timeout=300s", timeout_s=330)
