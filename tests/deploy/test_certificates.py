"""The certificates of deploy/certificates are those that the chart asks for: at every address that a service is
given, it meets the service of that name, and is known there by its own.
"""

import asyncio
import os
import re
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
import yaml

from services.runtime.auth.callers import SERVICES
from services.runtime.http2.tls import read_peer_identity
from services.runtime.process.transport import CA, CERT, KEY, Certificates
from tests.deploy.manifests import ROOT, Manifest, containers, environment, needs_go, pods
from tests.deploy.settings import CONFIGS, DEPLOY

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
pytestmark = [needs_go, needs_openssl]

RELEASE = {"RELEASE": "headrace", "NAMESPACE": "headrace"}

SPIFFE = b"spiffe://headrace.headrace/"

CLIENT = "batch"
"""A program outside of the suite."""


def issue(folder: Path, *clients: str) -> None:
    command = [DEPLOY / "certificates", folder, *clients]
    subprocess.run(command, env=os.environ | RELEASE, capture_output=True, timeout=60, check=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    issue(folder, CLIENT)
    return folder


def held(folder: Path, name: str) -> Certificates:
    return Certificates(*(str(folder / name / file) for file in ("tls.crt", "tls.key", "ca.crt")))


async def caller(server: Certificates, client: Certificates, host: str) -> list[bytes]:
    """The names by which `server` knows `client`, which takes it for `host`."""
    known: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()

    async def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found = read_peer_identity(writer.transport)  # pyright: ignore[reportArgumentType] - typed as any kind of transport
        known.set_result(found.get("x509_subject_alternative_name", []))
        writer.close()

    async with (
        asyncio.timeout(100),
        await asyncio.start_server(connected, "127.0.0.1", 0, ssl=server.make_server_context()) as at,
    ):
        port = at.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=client.get_client_context(), server_hostname=host
        )
        names = await known
        writer.close()
        return names


def called() -> list[tuple[str, str, str]]:
    """Each caller with the service and the host that it calls, as the manifests have them."""
    found: list[tuple[str, str, str]] = []
    for container in containers("default"):
        for name, address in environment(container).items():
            if name.endswith("_ADDRESS"):
                host = address.removeprefix("dns:///").partition(":")[0]
                found.append((container["name"], host.removeprefix("headrace-"), host))
            elif name == "HEADRACE_ORCHESTRATOR_ADVERTISE":
                host = address.replace("$(POD_NAME)", "headrace-orchestrator-11").partition(":")[0]
                found.append(("orchestrator", "orchestrator", host))
    return found


async def test_services_meet_each_other_at_their_addresses(folder: Path) -> None:
    for source, target, host in called():
        assert await caller(held(folder, target), held(folder, source), host), (source, target)


async def test_each_service_is_known_by_its_name_in_the_caller_table(folder: Path) -> None:
    known = [await caller(held(folder, "memory"), held(folder, name), "headrace-memory") for name in CONFIGS]
    names = {name.removeprefix(SPIFFE).decode() for found in known for name in found if name.startswith(SPIFFE)}
    assert names == SERVICES == {name.replace("-", "_") for name in CONFIGS}


async def test_a_service_is_not_taken_for_another(folder: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        await caller(held(folder, "tools"), held(folder, "orchestrator"), "headrace-memory")


async def test_a_program_of_another_namespace_is_met_and_is_no_service(folder: Path) -> None:
    (host,) = set(re.findall(r"dns:///([\w-]+\.\w+):7001", (ROOT / "docs" / "operating" / "install.md").read_text()))
    names = await caller(held(folder, "orchestrator"), held(folder, CLIENT), host)
    assert [name for name in names if name.startswith(SPIFFE)] == []


async def test_certificates_that_are_issued_again_are_of_the_same_authority(folder: Path, tmp_path: Path) -> None:
    issue(tmp_path)
    before = held(tmp_path, "memory")
    issue(tmp_path)
    assert await caller(before, held(tmp_path, "orchestrator"), "headrace-memory")
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate verify failed"):
        await caller(before, held(folder, "orchestrator"), "headrace-memory")


def test_each_pod_has_the_secret_of_its_own_and_reads_what_is_in_it(folder: Path) -> None:
    for name, pod in pods("default").items():
        (container,) = pod["spec"]["containers"]
        (mount,) = (item for item in container["volumeMounts"] if item["name"] == "tls")
        (volume,) = (item for item in pod["spec"]["volumes"] if item["name"] == "tls")
        assert (volume["secret"]["secretName"], mount["readOnly"]) == (f"headrace-{name}-tls", True)
        given = [environment(container)[variable] for variable in (CERT, KEY, CA)]
        assert given == [f"{mount['mountPath']}/{file}" for file in ("tls.crt", "tls.key", "ca.crt")]
        assert {path.name for path in (folder / name).iterdir()} == {Path(path).name for path in given}
        assert (folder / name / "tls.key").stat().st_mode & 0o777 == 0o600


def test_cert_manager_is_asked_for_the_same(folder: Path) -> None:
    documented = certificate()
    spec = documented["spec"]
    assert spec["secretName"] == documented["metadata"]["name"] == "headrace-orchestrator-tls"
    command = ["openssl", "x509", "-in", folder / "orchestrator" / "tls.crt", "-noout", "-ext", "subjectAltName"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout
    names = [f"URI:{name}" for name in spec["uris"]] + [f"DNS:{name}" for name in spec["dnsNames"]]
    assert shown.splitlines()[1].strip() == ", ".join(names)


def certificate() -> Manifest:
    """The example of docs/operating/install.md."""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", (ROOT / "docs" / "operating" / "install.md").read_text(), re.M | re.S)
    (found,) = (item for item in map(yaml.safe_load, blocks) if item.get("kind") == "Certificate")
    return found


def test_the_documented_loop_makes_the_secrets_of_all() -> None:
    (loop,) = re.findall(r"for service in (.*); do", (ROOT / "docs" / "operating" / "install.md").read_text())
    assert set(loop.split()) == CONFIGS.keys()
