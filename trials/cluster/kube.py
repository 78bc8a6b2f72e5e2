"""Access to the cluster of ./cluster for the checks."""

import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.deploy.manifests import ROOT
from trials.image.programs import STORAGE, name_missing, run_buildah, unmount_storage

HERE = Path(__file__).parent

FOLDER = ROOT / "build" / "cluster"

HOST = "10.89.0.1"
"""Address of the node, and of servers outside of pods."""

DNS = "10.89.2.10"

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

IMAGE = f"registry.example/headrace:{VERSION}"
"""Image of this checkout, named as in docs/operating/install.md."""

NEEDED = ("etcd", "containerd", "iptables", "ipset", "conntrack", "openssl")

COMPILE_TIMEOUT_S = 3600.0

TIMEOUT_S = 600.0
"""Timeout of operations that take seconds on an idle machine."""


def name_missing_programs() -> list[str]:
    path = f"{os.environ['PATH']}:/usr/sbin"
    return [*name_missing(), *(item for item in NEEDED if shutil.which(item, path=path) is None)]


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
    """Return the parsed output of kubectl get."""
    return json.loads(kubectl("get", "-o", "json", *arguments))


def apply(*items: dict[str, Any]) -> None:
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=json.dumps(as_list(items)))


def as_list(items: tuple[dict[str, Any], ...] | list[dict[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


def await_true(what: str, is_true: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> float:
    """Poll until the condition holds; return the seconds it took."""
    begin = time.monotonic()
    while not is_true():
        assert time.monotonic() < begin + timeout_s, f"not in {timeout_s:g} s: {what}"
        time.sleep(0.2)
    return time.monotonic() - begin


def find_processes(pod_uid: str, service: str) -> list[int]:
    """Return the process ids, on this machine, of the service in a pod."""
    module = f"services.{service.replace('-', '_')}"
    found = list[int]()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            of_pod = pod_uid in (process / "cgroup").read_text()
            command = (process / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if of_pod and module in command and command[0] != "tini":
            found.append(int(process.name))
    return found


def load_image(name: str) -> None:
    """Load an image of build/image into the node, as a registry would."""
    archive = STORAGE / "image.tar"
    archive.unlink(missing_ok=True)
    run_buildah("push", "--quiet", name, f"docker-archive:{archive}:{name}")
    unmount_storage()
    run_cluster("load", str(archive))


if __name__ == "__main__":
    sys.stdout.write(", ".join(name_missing_programs()))
