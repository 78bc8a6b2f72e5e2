"""What is outside of the suite: PostgreSQL on the node, and the simulated models in a namespace of their own."""

from __future__ import annotations

from pathlib import Path

from tests.deploy.cluster.installs import SIMULATOR
from tests.deploy.cluster.kube import HOST, apply, kubectl, run_cluster

PROGRAMS = max(Path("/usr/lib/postgresql").glob("*/bin"), default=Path("/nowhere"))

DATA = "/run/postgresql-data"
"""In the cluster's own /run, which is gone with it."""


def make_database(*names: str) -> None:
    """A server with these databases, where there is none."""
    if run_cluster("enter", "sh", "-c", f"ls {DATA} 2>/dev/null || true"):
        return
    run_cluster("enter", "install", "-d", "-o", "postgres", "-g", "postgres", "-m", "0700", DATA)
    _as_postgres(f"{PROGRAMS}/initdb -D {DATA} -A trust -U headrace >/dev/null")
    settings = f"listen_addresses='{HOST}'\\nunix_socket_directories='{DATA}'\\nfsync=off\\nmax_connections=200\\n"
    # The network policies are what keeps others away.
    _as_postgres(
        f"printf \"{settings}\" >>{DATA}/postgresql.conf; echo 'host all all 10.89.0.0/16 trust' >>{DATA}/pg_hba.conf"
    )
    start_database()
    for name in names:
        run_cluster(
            "enter",
            f"{PROGRAMS}/psql",
            "-h",
            HOST,
            "-U",
            "headrace",
            "-d",
            "postgres",
            "-qc",
            f"CREATE DATABASE {name}",
        )


def start_database() -> None:
    _as_postgres(f"{PROGRAMS}/pg_ctl -D {DATA} -w -l {DATA}/log start >/dev/null")


def stop_database() -> None:
    _as_postgres(f"{PROGRAMS}/pg_ctl -D {DATA} -w -m immediate stop >/dev/null")


def _as_postgres(command: str) -> None:
    run_cluster("enter", "su", "postgres", "-s", "/bin/sh", "-c", command)


def install_simulator() -> None:
    container = {
        "name": "simulator",
        "image": "headrace:0.1.0",
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
