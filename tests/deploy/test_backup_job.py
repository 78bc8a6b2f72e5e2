"""The CronJob of the component backup, and the Job that restores: their form, and what their scripts do here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.manifests import KUBERNETES, RESTRICTED, ROOT, Manifest, build_overlay, needs_go
from tests.deploy.schemas import validator
from tests.support.s3_store import Place, needs_s3, running_store
from tests.support.tiers import check_first

pytestmark = needs_go

HEADRACE = Path(sys.executable).parent / "headrace"

RESTORE: Manifest = yaml.safe_load((KUBERNETES / "components" / "backup" / "restore.yaml").read_text())


def build(overlay: str, *components: str) -> dict[str, Manifest]:
    """The objects by kind and name."""
    source = {
        "kind": "Kustomization",
        "resources": [f"headrace/deploy/kubernetes/overlays/{overlay}"],
        "components": [f"headrace/deploy/kubernetes/components/{component}" for component in components],
    }
    return {f"{item['kind']}/{item['metadata']['name']}": item for item in build_overlay(yaml.safe_dump(source))}


def pod_of(job: Manifest) -> Manifest:
    return job["spec"].get("jobTemplate", job)["spec"]["template"]["spec"]


def run_script(container: Manifest, tmp_path: Path, **words: str) -> subprocess.CompletedProcess[str]:
    """Run what a container runs, with folders of ours in place of its volumes."""
    script = container["args"][-1]
    for name, value in {"/backups": str(tmp_path / "backups"), "/data": str(tmp_path / "data"), **words}.items():
        script = re.sub(rf"{name}\b", value, script)
    programs = tmp_path / "programs"
    programs.mkdir(exist_ok=True)
    if not (programs / "headrace-backup").exists():
        (programs / "headrace-backup").symlink_to(ROOT / "deploy" / "backup")
    env = {"PATH": f"{programs}:{HEADRACE.parent}:{os.environ['PATH']}"}
    env |= {item["name"]: item["value"] for item in container.get("env", ()) if "value" in item}
    return subprocess.run(["bash", "-euc", script], env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(("overlay", "component"), [("prod", "backup"), ("dev", "backup-files")])
def test_its_pod_has_no_rights_and_the_volumes_of_the_installation(overlay: str, component: str) -> None:
    objects = build(overlay, component)
    job = objects["CronJob/backup"]
    for item in (job, objects["PersistentVolumeClaim/backups"], RESTORE):
        validator(item["apiVersion"], item["kind"]).validate(item)
    for pod in (pod_of(job), pod_of(RESTORE)):
        context: dict[str, Any] = pod["securityContext"]
        assert (pod["automountServiceAccountToken"], context["runAsNonRoot"], context["runAsUser"]) == (
            False,
            True,
            10001,
        )
        for container in [*pod.get("initContainers", ()), *pod["containers"]]:
            assert container["securityContext"] == RESTRICTED
    (container,) = pod_of(job)["containers"]
    assert container["image"] == "headrace:0.1.0"
    claims = {volume["name"]: volume["persistentVolumeClaim"]["claimName"] for volume in pod_of(job)["volumes"]}
    assert claims == {"backups": "backups", "data": "workspaces" if overlay == "prod" else "data-suite-0"}
    assert ("NetworkPolicy/backup-database" in objects) == (overlay == "prod")


def test_a_dump_and_the_files_are_kept_and_the_oldest_go(tmp_path: Path) -> None:
    backups, data = tmp_path / "backups", tmp_path / "data"
    backups.mkdir()
    for day in range(10, 26):
        (backups / f"2026-01-{day}T03-17-00.tar").write_bytes(b"")
    (data / "workspaces").mkdir(parents=True)
    (data / "workspaces" / "a").write_text("kept")
    (backups / "database.dump").write_text("a dump")
    (container,) = pod_of(build("prod", "backup")["CronJob/backup"])["containers"]
    done = run_script(container, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    left = sorted(path.name for path in backups.iterdir())
    assert (len(left), left[0]) == (14, "2026-01-13T03-17-00.tar")
    with tarfile.open(backups / left[-1]) as tar:
        assert set(tar.getnames()) == {"database.dump", "workspaces", "workspaces/a"}

    unpack = pod_of(RESTORE)["initContainers"][0]
    (tmp_path / "restored").mkdir()
    words = {str(data): str(tmp_path / "restored"), "FILE": left[-1]}
    done = run_script(unpack, tmp_path, **words)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "restored" / "workspaces" / "a").read_text() == "kept"
    done = run_script(unpack, tmp_path, **words)
    assert (done.returncode, done.stderr) == (1, "the volume is not empty\n")


@needs_s3
@pytest.mark.parametrize(("overlay", "component"), check_first([("prod", "backup"), ("dev", "backup-files")]))
def test_a_backup_goes_into_a_bucket_and_comes_back(tmp_path: Path, overlay: str, component: str) -> None:
    objects = build(overlay, component, "backup-bucket")
    for item in objects.values():
        if item["metadata"]["name"].startswith("backup"):
            validator(item["apiVersion"], item["kind"]).validate(item)
    (container,) = pod_of(objects["CronJob/backup"])["containers"]
    named = {
        variable["name"]: variable["valueFrom"]["secretKeyRef"]
        for variable in container["env"]
        if "valueFrom" in variable
    }
    assert {name: key["key"] for name, key in named.items()} == {
        "BUCKET": "url",
        "AWS_REGION": "region",
        "AWS_ENDPOINT_URL": "endpoint",
        "AWS_ACCESS_KEY_ID": "access-key-id",
        "AWS_SECRET_ACCESS_KEY": "secret-access-key",
    }
    assert {key["name"] for key in named.values()} == {"backup-bucket"}
    assert [name for name, key in named.items() if not key.get("optional")] == ["BUCKET"]
    chats = tmp_path / "data" / "chats"
    chats.mkdir(parents=True)
    (chats / "a.json").write_text("{}")
    (tmp_path / "backups").mkdir()
    with running_store() as settings:
        place = Place(settings)
        variables = place.variables | {"BUCKET": place.url}
        variables.pop("HEADRACE_MEMORY_BLOBS")
        given = [{"name": name, "value": value} for name, value in variables.items()]
        done = run_script({"args": container["args"], "env": [{"name": "KEEP", "value": "14"}, *given]}, tmp_path)
        assert done.returncode == 0, done.stderr
        (made,) = (tmp_path / "backups").iterdir()
        command = [HEADRACE, "backups", "get", place.url, made.name, str(tmp_path / "back.tar")]
        subprocess.run(command, env=os.environ | variables, check=True, capture_output=True)
    assert (tmp_path / "back.tar").read_bytes() == made.read_bytes()


def test_files_alone_are_kept_where_chats_are_files(tmp_path: Path) -> None:
    backups, chats = tmp_path / "backups", tmp_path / "data" / "chats"
    backups.mkdir()
    chats.mkdir(parents=True)
    (chats / "a.json").write_text("{}")
    (container,) = pod_of(build("dev", "backup-files")["CronJob/backup"])["containers"]
    done = run_script(container, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    (made,) = backups.iterdir()
    with tarfile.open(made) as tar:
        assert tar.getnames() == ["chats", "chats/a.json"]
