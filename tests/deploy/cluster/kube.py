"""The cluster of ./cluster for the checks: its programs are compiled, an image is in it, and names resolve."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.deploy.image.build import build_image
from tests.deploy.image.programs import STORAGE, name_missing, run_buildah, unmount_storage
from tests.deploy.manifests import ROOT

HERE = Path(__file__).parent

FOLDER = ROOT / "build" / "cluster"

HOST = "10.89.0.1"
"""The node's address, and that of what runs beside pods."""

DNS = "10.89.2.10"

NEEDED = ("etcd", "containerd", "iptables", "ipset", "conntrack", "openssl")

COMPILE_TIMEOUT_S = 3600.0

TIMEOUT_S = 600.0
"""For what takes seconds on a machine that has nothing else to do."""


def name_missing_programs() -> list[str]:
    path = f"{os.environ['PATH']}:/usr/sbin"
    return [*name_missing(), *(it for it in NEEDED if shutil.which(it, path=path) is None)]


def run_cluster(*arguments: str, text: str | None = None, timeout_s: float = TIMEOUT_S) -> str:
    done = subprocess.run(
        [HERE / "cluster", *arguments],
        env=os.environ | {"CLUSTER": str(FOLDER)},
        input=text,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(arguments)[:500]}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


def kubectl(*arguments: str, text: str | None = None, timeout_s: float = TIMEOUT_S) -> str:
    return run_cluster("kubectl", *arguments, text=text, timeout_s=timeout_s)


def get(*arguments: str) -> Any:
    """What kubectl get has to say, parsed."""
    return json.loads(kubectl("get", "-o", "json", *arguments))


def apply(*items: dict[str, Any]) -> None:
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=json.dumps(as_list(items)))


def as_list(items: tuple[dict[str, Any], ...] | list[dict[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


def await_true(what: str, is_true: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> float:
    """Asks again until it is so; the seconds that it took."""
    begin = time.monotonic()
    while not is_true():
        assert time.monotonic() < begin + timeout_s, f"not in {timeout_s:g} s: {what}"
        time.sleep(0.2)
    return time.monotonic() - begin


@contextmanager
def running_cluster() -> Generator[None]:
    """A cluster with the image `headrace:0.1.0` of this checkout, without anything of ours."""
    keep = bool(os.environ.get("KEEP_CLUSTER"))
    if keep and (FOLDER / "run" / "holder.pid").exists():
        yield
        return
    (FOLDER / "bin").mkdir(parents=True, exist_ok=True)
    subprocess.run([HERE / "compile", FOLDER / "bin"], check=True, timeout=COMPILE_TIMEOUT_S)
    archive = export_image(os.environ.get("HEADRACE_IMAGE") or build_image(), "headrace:0.1.0")
    run_cluster("down")
    run_cluster("up")
    try:
        run_cluster("load", str(archive))
        install_dns()
        yield
    finally:
        if not keep:
            run_cluster("down")


def export_image(image: str, name: str) -> Path:
    archive = STORAGE / "image.tar"
    archive.unlink(missing_ok=True)
    run_buildah("push", "--quiet", image, f"docker-archive:{archive}:docker.io/library/{name}")
    unmount_storage()
    return archive


def install_dns() -> None:
    """Names are where the network policies look for them: at pods of kube-system with the label k8s-app: kube-dns."""
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
        "image": "headrace:0.1.0",
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


if __name__ == "__main__":
    sys.stdout.write(", ".join(name_missing_programs()))
