"""The certificates of deploy/certificates match the chart: at every address that a service gets, it reaches the service
of that name, and is identified there by its own.
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
"""A client program that is not one of the services."""


def issue(folder: Path, *clients: str) -> None:
    command = [DEPLOY / "certificates", folder, *clients]
    subprocess.run(command, env=os.environ | RELEASE, capture_output=True, timeout=60, check=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    issue(folder, CLIENT)
    return folder


def load_certificates(folder: Path, name: str) -> Certificates:
    return Certificates(*(str(folder / name / file) for file in ("tls.crt", "tls.key", "ca.crt")))


async def read_client_names(server: Certificates, client: Certificates, host: str) -> list[bytes]:
    """Connect `client` to `server` as `host`; return the names in the client's certificate that the server gets."""
    known: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()

    async def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        identity = read_peer_identity(writer.transport)  # pyright: ignore[reportArgumentType] - typed as any kind of transport
        known.set_result(identity.get("x509_subject_alternative_name", []))
        writer.close()

    async with (
        asyncio.timeout(100),
        await asyncio.start_server(connected, "127.0.0.1", 0, ssl=server.make_server_context()) as listener,
    ):
        port = listener.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=client.get_client_context(), server_hostname=host
        )
        names = await known
        writer.close()
        return names


def list_calls() -> list[tuple[str, str, str]]:
    """Return each caller with the service and the host that it calls, from the manifests."""
    calls: list[tuple[str, str, str]] = []
    for container in containers("default"):
        for name, address in environment(container).items():
            if name.endswith("_ADDRESS"):
                host = address.removeprefix("dns:///").partition(":")[0]
                calls.append((container["name"], host.removeprefix("headrace-"), host))
            elif name == "HEADRACE_ORCHESTRATOR_ADVERTISE":
                host = address.replace("$(POD_NAME)", "headrace-orchestrator-11").partition(":")[0]
                calls.append(("orchestrator", "orchestrator", host))
    return calls


async def test_services_accept_each_others_certificates_at_their_addresses(folder: Path) -> None:
    for source, target, host in list_calls():
        assert await read_client_names(load_certificates(folder, target), load_certificates(folder, source), host), (
            source,
            target,
        )


async def test_each_certificate_has_the_services_name_in_the_caller_table(folder: Path) -> None:
    known = [
        await read_client_names(load_certificates(folder, "memory"), load_certificates(folder, name), "headrace-memory")
        for name in CONFIGS
    ]
    names = {name.removeprefix(SPIFFE).decode() for found in known for name in found if name.startswith(SPIFFE)}
    assert names == SERVICES == {name.replace("-", "_") for name in CONFIGS}


async def test_a_certificate_of_another_service_is_refused(folder: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        await read_client_names(
            load_certificates(folder, "tools"), load_certificates(folder, "orchestrator"), "headrace-memory"
        )


async def test_a_client_of_another_namespace_connects_but_is_no_service(folder: Path) -> None:
    (host,) = set(re.findall(r"dns:///([\w-]+\.\w+):7001", (ROOT / "docs" / "operating" / "install.md").read_text()))
    names = await read_client_names(load_certificates(folder, "orchestrator"), load_certificates(folder, CLIENT), host)
    assert [name for name in names if name.startswith(SPIFFE)] == []


async def test_reissued_certificates_have_the_same_authority(folder: Path, tmp_path: Path) -> None:
    issue(tmp_path)
    before = load_certificates(tmp_path, "memory")
    issue(tmp_path)
    assert await read_client_names(before, load_certificates(tmp_path, "orchestrator"), "headrace-memory")
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate verify failed"):
        await read_client_names(before, load_certificates(folder, "orchestrator"), "headrace-memory")


def test_each_pod_mounts_its_own_secret_and_reads_its_files(folder: Path) -> None:
    for name, pod in pods("default").items():
        (container,) = pod["spec"]["containers"]
        (mount,) = (item for item in container["volumeMounts"] if item["name"] == "tls")
        (volume,) = (item for item in pod["spec"]["volumes"] if item["name"] == "tls")
        assert (volume["secret"]["secretName"], mount["readOnly"]) == (f"headrace-{name}-tls", True)
        given = [environment(container)[variable] for variable in (CERT, KEY, CA)]
        assert given == [f"{mount['mountPath']}/{file}" for file in ("tls.crt", "tls.key", "ca.crt")]
        assert {path.name for path in (folder / name).iterdir()} == {Path(path).name for path in given}
        assert (folder / name / "tls.key").stat().st_mode & 0o777 == 0o600


def test_the_documented_cert_manager_certificate_has_the_same_names(folder: Path) -> None:
    documented = read_documented_certificate()
    spec = documented["spec"]
    assert spec["secretName"] == documented["metadata"]["name"] == "headrace-orchestrator-tls"
    command = ["openssl", "x509", "-in", folder / "orchestrator" / "tls.crt", "-noout", "-ext", "subjectAltName"]
    output = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout
    names = [f"URI:{name}" for name in spec["uris"]] + [f"DNS:{name}" for name in spec["dnsNames"]]
    assert output.splitlines()[1].strip() == ", ".join(names)


def read_documented_certificate() -> Manifest:
    """Return the example of docs/operating/install.md."""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", (ROOT / "docs" / "operating" / "install.md").read_text(), re.M | re.S)
    (found,) = (item for item in map(yaml.safe_load, blocks) if item.get("kind") == "Certificate")
    return found


def test_the_documented_loop_creates_the_secrets_of_all_services() -> None:
    (loop,) = re.findall(r"for service in (.*); do", (ROOT / "docs" / "operating" / "install.md").read_text())
    assert set(loop.split()) == CONFIGS.keys()
