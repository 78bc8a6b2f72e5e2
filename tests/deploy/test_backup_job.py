"""The CronJob that makes backups and the Job that restores one: their pods, and what their scripts do."""

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.manifests import RESTRICTED, ROOT, Manifest, needs_go, of_kind
from tests.support.s3_store import Place, needs_s3, running_store

pytestmark = needs_go

HEADRACE = Path(sys.executable).parent / "headrace"


def pod_of(variant: str, kind: str = "CronJob") -> Manifest:
    (job,) = of_kind(variant, kind).values()
    return job["spec"].get("jobTemplate", job)["spec"]["template"]["spec"]


def run_script(container: Manifest, tmp_path: Path, **words: str) -> subprocess.CompletedProcess[str]:
    """Run a container's script with local folders instead of its volumes."""
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


@pytest.mark.parametrize(("variant", "kind"), [("backups", "CronJob"), ("backups", "Job"), ("single", "CronJob")])
def test_a_backup_pod_has_no_rights_and_mounts_the_installations_volumes(variant: str, kind: str) -> None:
    pod = pod_of(variant, kind)
    context: dict[str, Any] = pod["securityContext"]
    rights = (pod["automountServiceAccountToken"], context["runAsNonRoot"], context["runAsUser"])
    assert rights == (False, True, 10001)
    for container in [*pod.get("initContainers", ()), *pod["containers"]]:
        assert container["securityContext"] == RESTRICTED
    claims = {volume["name"]: volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"]}
    data = "data-headrace-0" if variant == "single" else "headrace-workspaces"
    assert claims == {"backups": "headrace-backups", "data": data}
    assert ("initContainers" in pod) == (variant == "backups")


def test_a_backup_has_dump_and_files_and_the_oldest_are_deleted(tmp_path: Path) -> None:
    backups, data = tmp_path / "backups", tmp_path / "data"
    backups.mkdir()
    for day in range(10, 26):
        (backups / f"2026-01-{day}T03-17-00.tar").write_bytes(b"")
    (data / "workspaces").mkdir(parents=True)
    (data / "workspaces" / "a").write_text("kept")
    (backups / "database.dump").write_text("a dump")
    (container,) = pod_of("backups")["containers"]
    process = run_script(container | {"env": container["env"][:1]}, tmp_path)  # without a bucket
    assert (process.returncode, process.stderr) == (0, "")
    backup_names = sorted(path.name for path in backups.iterdir())
    assert (len(backup_names), backup_names[0]) == (7, "2026-01-20T03-17-00.tar")
    with tarfile.open(backups / backup_names[-1]) as tar:
        assert set(tar.getnames()) == {"database.dump", "workspaces", "workspaces/a"}

    unpack = pod_of("backups", "Job")["initContainers"][0]
    (tmp_path / "restored").mkdir()
    words = {str(data): str(tmp_path / "restored"), "2026-11-21T03-17-04.tar": backup_names[-1]}
    process = run_script(unpack, tmp_path, **words)
    assert (process.returncode, process.stderr) == (0, "")
    assert (tmp_path / "restored" / "workspaces" / "a").read_text() == "kept"
    process = run_script(unpack, tmp_path, **words)
    assert (process.returncode, process.stderr) == (1, "the volume is not empty\n")


@needs_s3
def test_a_backup_is_uploaded_to_a_bucket_and_downloaded_again(tmp_path: Path) -> None:
    (container,) = pod_of("backups")["containers"]
    environment = {
        item["name"]: item.get("value") or item["valueFrom"]["secretKeyRef"]["name"] for item in container["env"]
    }
    assert environment == {
        "KEEP": "7",
        "BUCKET": "s3://backups/headrace",
        "AWS_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": "backup-bucket",
        "AWS_SECRET_ACCESS_KEY": "backup-bucket",
    }
    chats = tmp_path / "data" / "chats"
    chats.mkdir(parents=True)
    (chats / "a.json").write_text("{}")
    (tmp_path / "backups").mkdir()
    with running_store() as settings:
        place = Place(settings)
        variables = place.variables | {"BUCKET": place.url}
        variables.pop("HEADRACE_MEMORY_BLOBS")
        environment = [{"name": name, "value": value} for name, value in variables.items()]
        process = run_script(
            {"args": container["args"], "env": [{"name": "KEEP", "value": "14"}, *environment]}, tmp_path
        )
        assert process.returncode == 0, process.stderr
        (backup,) = (tmp_path / "backups").iterdir()
        command = [HEADRACE, "backups", "get", place.url, backup.name, str(tmp_path / "back.tar")]
        subprocess.run(command, env=os.environ | variables, check=True, capture_output=True)
    assert (tmp_path / "back.tar").read_bytes() == backup.read_bytes()


def test_a_backup_of_chats_in_files_has_no_dump(tmp_path: Path) -> None:
    backups, chats = tmp_path / "backups", tmp_path / "data" / "chats"
    backups.mkdir()
    chats.mkdir(parents=True)
    (chats / "a.json").write_text("{}")
    (container,) = pod_of("single")["containers"]
    process = run_script(container, tmp_path)
    assert (process.returncode, process.stderr) == (0, "")
    (backup,) = backups.iterdir()
    with tarfile.open(backup) as tar:
        assert tar.getnames() == ["chats", "chats/a.json"]
