"""One container of the image, with the restrictions of a pod in the manifests."""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from trials.image.programs import environment, podman_command, run_podman

START_S = 60.0
"""Time for a container's first process to start, on a busy machine."""

REST_BYTES_MAX = 90_000_000
"""Maximum resident memory of an idle service that has had no request."""

REST_LOOKS = 8
"""In seconds; longer than imports ever pause."""

REST_GROWTH_BYTES = 1 << 20
"""Allowed growth from looking for missing peers."""


def restrictions(pod: dict[str, Any], container: dict[str, Any], data: Path) -> list[str]:
    """Return podman's options for the manifest of a pod and its container; `data` is mounted at /data.

    It is a folder and not a tmpfs, because podman makes tmpfs writable only for root.
    """
    user = pod["spec"]["securityContext"]
    own = container["securityContext"]
    assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}  # as podman has it
    (tmp,) = (item for item in pod["spec"]["volumes"] if item["name"] == "tmp")
    size = tmp["emptyDir"]["sizeLimit"].removesuffix("i").lower()
    return [
        *("--user", f"{user['runAsUser']}:{user['runAsGroup']}", "--network", "none"),
        *(f"--cap-drop={item}" for item in own["capabilities"]["drop"]),
        *(["--read-only", "--read-only-tmpfs=false"] if own["readOnlyRootFilesystem"] else []),
        *([] if own["allowPrivilegeEscalation"] else ["--security-opt=no-new-privileges"]),
        *("--tmpfs", f"/tmp:size={size},mode=1777", "--volume", f"{data}:/data"),
    ]


def run(image: str, options: list[str], *command: str) -> str:
    """Return the command's output; the command must succeed."""
    return run_podman("run", "--rm", *options, image, *command)


@dataclass(frozen=True, slots=True)
class Running:
    """A container with a first process that can be stopped as soon as it exists."""

    pid: int

    def rest_bytes(self) -> int:
        """Return the resident memory of the service once it has not grown for some seconds."""
        end = time.monotonic() + START_S
        sizes = [0]
        while len(sizes) <= REST_LOOKS or sizes[-1] > sizes[-REST_LOOKS - 1] + REST_GROWTH_BYTES:
            assert time.monotonic() < end, f"does not come to rest: {sizes}"
            time.sleep(1)
            pages = [int(Path(f"/proc/{item}/statm").read_text().split()[1]) for item in _list_children(self.pid)]
            sizes.append(sum(pages) * os.sysconf("SC_PAGE_SIZE"))
        return sizes[-1]

    def stop(self) -> float:
        """Stop it as a kubelet does; return the seconds until it was gone."""
        process = os.pidfd_open(self.pid)
        try:
            begin = time.monotonic()
            signal.pidfd_send_signal(process, signal.SIGTERM)
            gone, _, _ = select.select([process], [], [], 60)
            assert gone, "still there after a minute"
            return time.monotonic() - begin
        finally:
            os.close(process)


@contextmanager
def starting(image: str, options: list[str], *command: str) -> Generator[Running]:
    """Start a container and yield it when its entry point has just been executed."""
    name = run_podman("create", *options, image, *command).strip()
    try:
        # Before the entry point is executed, the process is the container runtime.
        run_podman("init", name)
        pid = int(json.loads(run_podman("inspect", name))[0]["State"]["Pid"])
        with TemporaryFile() as output:
            starter = subprocess.Popen(podman_command("start", name), env=environment(), stdout=output, stderr=output)
            try:
                _await_entry_point(pid, starter, output)
                yield Running(pid)
            finally:
                starter.wait(timeout=START_S)
    finally:
        run_podman("rm", "--force", "--time", "0", name)


def _await_entry_point(pid: int, starter: subprocess.Popen[bytes], output: IO[bytes]) -> None:
    """Wait until tini has its child, before which it blocks signals; earlier ones are discarded by the kernel."""
    end = time.monotonic() + START_S
    while b"tini" not in (command := Path(f"/proc/{pid}/cmdline").read_bytes()) or not _list_children(pid):
        if time.monotonic() > end or starter.poll():
            output.seek(0)
            status = Path(f"/proc/{pid}/status").read_text()
            raise AssertionError(f"no entry point: {command!r}, podman: {starter.poll()} {output.read()!r}\n{status}")


def _list_children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
