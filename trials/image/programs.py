"""buildah and podman with separate storage below build/image, so that other images and containers are not
affected.
"""

import os
import resource
import shutil
import subprocess
import sys

from tests.deploy.manifests import ROOT

STORAGE = ROOT / "build" / "image"

NEEDED = ("buildah", "podman", "runc", "mmdebstrap", "go")
"""Debian packages, except Go; root is needed too."""

TIMEOUT_S = 1800.0
"""Limit of the longest step, a full build of the image: two minutes on two idle cores."""

NOFILE_MAX, NPROC_MAX = 16384, 4096


def name_missing() -> list[str]:
    """Return the missing prerequisites of building an image."""
    return [*([] if os.geteuid() == 0 else ["root"]), *(item for item in NEEDED if shutil.which(item) is None)]


def run_buildah(*arguments: str) -> str:
    return _run("buildah", *_stores(), *arguments)


def run_podman(*arguments: str) -> str:
    return _run(*podman_command(*arguments))


def podman_command(*arguments: str) -> list[str]:
    return ["podman", *_stores(), "--cgroup-manager", "cgroupfs", "--runtime", "runc", *arguments]


def environment() -> dict[str, str]:
    """Return the environment of both programs."""
    settings = STORAGE / "containers.conf"
    settings.parent.mkdir(parents=True, exist_ok=True)
    # Not above this process's limits, which root without CAP_SYS_RESOURCE cannot raise; buildah lowers its own
    # before it sets them.
    files = _limit(resource.RLIMIT_NOFILE, NOFILE_MAX)
    processes = _limit(resource.RLIMIT_NPROC, NPROC_MAX)
    settings.write_text(
        f'[containers]\ndefault_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]\n'
        '[engine]\nevents_logger = "none"\n'
    )
    return os.environ | {"CONTAINERS_CONF": str(settings), "TMPDIR": str(STORAGE)}


def _limit(kind: int, most: int) -> int:
    _, hard = resource.getrlimit(kind)
    return most if hard == resource.RLIM_INFINITY else min(hard, most)


def unmount_storage() -> None:
    """Unmount the folder that the storage driver leaves mounted over itself."""
    command = ["umount", "--recursive", "--quiet", STORAGE / "storage" / "overlay"]
    subprocess.run(command, capture_output=True, check=False)


def _stores() -> tuple[str, ...]:
    return "--root", str(STORAGE / "storage"), "--runroot", str(STORAGE / "run"), "--storage-driver", "overlay"


def _run(*command: str) -> str:
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


if __name__ == "__main__":
    sys.stdout.write(", ".join(name_missing()))
