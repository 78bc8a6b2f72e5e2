"""PostgreSQL outside of the cluster, at its node's address."""

from pathlib import Path

from tests.deploy.manifests import ROOT
from trials.cluster.kube import FOLDER, HOST, load_image, run_cluster
from trials.image.build import base_images, build_from

PROGRAMS = max(Path("/usr/lib/postgresql").glob("*/bin"), default=Path("/nowhere"))

DATA = "/run/postgresql-data"
"""In the cluster's own /run, which is removed with it."""


CLIENT_IMAGE = "docker.io/library/postgres:17-trixie"
"""Name in the manifests of backups; here it has the server version's pg_dump and pg_restore, and no server."""


def add_client_image() -> None:
    folder = FOLDER / "postgres"
    folder.mkdir(exist_ok=True)
    base, _ = base_images(ROOT)
    install = "apt-get update && apt-get install -qy --no-install-recommends postgresql-client"
    (folder / "Dockerfile").write_text(f"FROM {base}\nRUN {install}\n")
    build_from(folder / "Dockerfile", folder, CLIENT_IMAGE)
    load_image(CLIENT_IMAGE)


def make_server() -> None:
    """Create a server if there is none."""
    if run_cluster("enter", "sh", "-c", f"ls {DATA} 2>/dev/null || true"):
        return
    run_cluster("enter", "install", "-d", "-o", "postgres", "-g", "postgres", "-m", "0700", DATA)
    _as_postgres(f"{PROGRAMS}/initdb -D {DATA} -A trust -U headrace >/dev/null")
    settings = f"listen_addresses='{HOST}'\\nunix_socket_directories='{DATA}'\\nfsync=off\\nmax_connections=200\\n"
    # Access is restricted by the network policies.
    _as_postgres(
        f"printf \"{settings}\" >>{DATA}/postgresql.conf; echo 'host all all 10.89.0.0/16 trust' >>{DATA}/pg_hba.conf"
    )
    start_database()


def add_database(name: str) -> None:
    """Create an empty database, replacing one left by an earlier check."""
    ask_database("postgres", f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    ask_database("postgres", f"CREATE DATABASE {name}")


def ask_database(name: str, statement: str) -> str:
    command = (f"{PROGRAMS}/psql", "-h", HOST, "-U", "headrace", "-d", name, "-qtAc", statement)
    return run_cluster("enter", *command).strip()


def start_database() -> None:
    _as_postgres(f"{PROGRAMS}/pg_ctl -D {DATA} -w -l {DATA}/log start >/dev/null")


def stop_database() -> None:
    _as_postgres(f"{PROGRAMS}/pg_ctl -D {DATA} -w -m immediate stop >/dev/null")


def _as_postgres(command: str) -> None:
    run_cluster("enter", "su", "postgres", "-s", "/bin/sh", "-c", command)
