"""`python -m trials image`: builds the image and runs it as the manifests run pods.

It needs root, Debian's packages and a minute or two. HEADRACE_IMAGE names an image already in build/image.
"""

import json
import os
import re
import time
import tomllib
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.deploy.manifests import ROOT, pods
from trials.image.build import base_images, build_image, size_bytes
from trials.image.container import REST_BYTES_MAX, restrictions, run, starting
from trials.image.programs import name_missing, run_podman, unmount_storage

pytestmark = pytest.mark.skipif(bool(name_missing()), reason=f"NOTICE: not here: {', '.join(name_missing())}")

SIZE_BYTES_MAX = 250_000_000
"""Maximum size that the image adds to its base."""

STOP_S = 2.0

MOMENTS_S = (0.0, 0.05, 0.2, 0.5, 1.0, 3.0)
"""After the entry point has started: while Python starts, while it imports, and once it listens."""

USER = 10001

WRITE_EVERYWHERE = """
for folder in $(find / -type d -not -path "/proc/*" -not -path "/sys/*" 2>/dev/null); do
    (: > $folder/.probe) 2>/dev/null && { rm $folder/.probe; echo $folder; }
done
find / -xdev -type f -writable -not -path "/proc/*" -not -path "/sys/*" 2>/dev/null
true
"""

LOAD_LIBRARIES = """
import ctypes, pathlib, sysconfig
libraries = sorted(pathlib.Path(sysconfig.get_path("purelib")).rglob("*.so"))
for library in libraries:
    ctypes.CDLL(str(library))
import fontTools.subset, pptx, pypdf, reportlab.pdfgen.canvas, trafilatura  # what tools loads when it is wanted
from reportlab.pdfbase.ttfonts import TTFont
for name in ("Vera", "VeraBd", "VeraIt", "VeraBI"):
    TTFont(name, name + ".ttf")
page = "<html><body><article><p>" + "Words. " * 50 + "</p></article></body></html>"
print(len(libraries), trafilatura.extract(page)[:6])
"""
"""Each library was stripped, and files were removed from third-party packages."""


@pytest.fixture(scope="module")
def image() -> Generator[str]:
    yield os.environ.get("HEADRACE_IMAGE") or build_image()
    unmount_storage()


@pytest.fixture
def as_a_pod(tmp_path: Path) -> list[str]:
    """Return podman options equivalent to a pod of tools, the service that writes to /data."""
    data = tmp_path / "data"
    data.mkdir()
    os.chown(data, USER, USER)
    pod = pods("default")["tools"]
    (container,) = pod["spec"]["containers"]
    return restrictions(pod, container, data)


def test_the_image_adds_little_to_its_base(image: str) -> None:
    base, _ = base_images(ROOT)
    assert size_bytes(image) - size_bytes(base) <= SIZE_BYTES_MAX


def test_it_brings_our_commands_alone_and_nothing_to_build_with(image: str, as_a_pod: list[str]) -> None:
    found = run(image, as_a_pod, "ls", "/opt/headrace/bin").split()
    assert [item for item in found if not re.fullmatch(r"python[\d.]*", item)] == [
        "headrace",
        "headrace-backup",
        "headrace-gateway",
    ]
    assert run(image, as_a_pod, "sh", "-c", "command -v pip pip3 cc gcc make go strip git; true") == ""


def test_every_library_loads(image: str, as_a_pod: list[str]) -> None:
    libraries, words = run(image, as_a_pod, "python", "-c", LOAD_LIBRARIES).split()
    assert int(libraries) > 40
    assert words == "Words."


def test_a_process_has_no_rights(image: str, as_a_pod: list[str]) -> None:
    status = dict(line.split(":\t") for line in run(image, as_a_pod, "cat", "/proc/self/status").splitlines())
    assert {name: value for name, value in status.items() if name.startswith("Cap") and int(value, 16)} == {}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert status["Uid"].split() == status["Gid"].split() == [str(USER)] * 4


def test_nothing_can_be_written_but_what_is_mounted_for_it(image: str, as_a_pod: list[str]) -> None:
    found = run(image, as_a_pod, "sh", "-c", WRITE_EVERYWHERE).split()
    # The last two exist in every container: 64 MB that count as its memory, and queues.
    assert sorted(found) == ["/data", "/dev/mqueue", "/dev/shm", "/tmp"]


def test_the_user_owns_nothing_of_the_image_but_its_data(image: str, as_a_pod: list[str]) -> None:
    writable_root = [item for item in as_a_pod if not item.startswith("--read-only")]
    found = run(image, writable_root, "sh", "-c", WRITE_EVERYWHERE).split()
    debians = {"/run/lock", "/var/tmp"}
    assert sorted({*found} - debians) == ["/data", "/dev/mqueue", "/dev/shm", "/tmp"]


def test_it_answers_a_question(image: str, as_a_pod: list[str]) -> None:
    ports = ("--port", "0", "--grpc-port", "0", "--simulate-port", "0")
    asked = ("--agent", "assistant", "--ask", "What is the weather in Paris today?")
    output = run(image, as_a_pod, "headrace", "up", "--simulate", "--data-dir", "/data/demo", *ports, *asked)
    assert "The weather in Paris on" in output


@pytest.mark.parametrize("command", ["memory", "llm_gateway", "tools", "orchestrator", "facade", "suite"])
def test_it_stops_at_once_from_its_first_moment(image: str, as_a_pod: list[str], command: str) -> None:
    took = {}
    for moment in MOMENTS_S:
        with starting(image, as_a_pod, "python", "-m", f"services.{command}") as container:
            time.sleep(moment)
            took[moment] = container.stop()
    assert {moment: seconds for moment, seconds in took.items() if seconds >= STOP_S} == {}


@pytest.mark.parametrize("service", ["memory", "llm_gateway", "tools", "orchestrator", "facade"])
def test_a_service_rests_within_its_size(image: str, as_a_pod: list[str], service: str) -> None:
    # Without the examples' MCP server, for which tools needs another 20 MB for the SDK.
    options = [*as_a_pod, "--env", "HEADRACE_CONFIG_DIR=/data"]
    with starting(image, options, "python", "-m", f"services.{service}") as container:
        try:
            assert container.rest_bytes() <= REST_BYTES_MAX
        finally:
            container.stop()


def test_it_says_what_it_is(image: str) -> None:
    config = json.loads(run_podman("image", "inspect", image))[0]["Config"]
    assert (config["User"], config["Entrypoint"]) == (str(USER), ["tini", "--"])
    prefix = "org.opencontainers.image."
    labels = {name.removeprefix(prefix): value for name, value in config["Labels"].items() if name.startswith(prefix)}
    assert labels["version"] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert re.fullmatch("[0-9a-f]{40}", labels["revision"])
    assert labels["base.name"] == base_images(ROOT)[0]
    assert re.fullmatch("sha256:[0-9a-f]{64}", labels["base.digest"])
