"""A Kubernetes API server with its etcd, without nodes: it accepts and refuses objects as a cluster would."""

import asyncio
import json
import secrets
import ssl
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from headrace.cli.supervisor.ports import reserve_port

MODULE = Path(__file__).parent
"""Folder of the go.mod that names the versions."""

ETCD, APISERVER = "go.etcd.io/etcd/server/v3", "k8s.io/kubernetes/cmd/kube-apiserver"

COMPILE_TIMEOUT_S = 1800.0
"""Long enough for compiling, which takes two to three minutes on two idle cores."""

START_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: dict[str, Any]
    warnings: list[str]
    """Warnings that kubectl would print: an unknown field, an old version, a pod that is not restricted."""


@dataclass(frozen=True, slots=True)
class Api:
    """A client of the API server, similar to kubectl."""

    http: aiohttp.ClientSession
    url: str

    async def apply(self, item: dict[str, Any], *, dry_run: bool) -> Answer:
        """Apply an object on the server, refusing unknown fields."""
        path = f"{await self._collection(item)}/{item['metadata']['name']}"
        parameters = {"fieldManager": "headrace", "fieldValidation": "Strict"} | ({"dryRun": "All"} if dry_run else {})
        headers = {"Content-Type": "application/apply-patch+yaml"}
        async with self.http.patch(path, params=parameters, data=json.dumps(item), headers=headers) as response:
            return await _answer(response)

    async def create(self, item: dict[str, Any]) -> Answer:
        """Create an object as a dry run."""
        async with self.http.post(await self._collection(item), params={"dryRun": "All"}, json=item) as response:
            return await _answer(response)

    async def _collection(self, item: dict[str, Any]) -> str:
        version = item["apiVersion"]
        root = f"{self.url}/{'apis' if '/' in version else 'api'}/{version}"
        async with self.http.get(root) as response:
            resources = (await response.json())["resources"]
        (found,) = (entry for entry in resources if entry["kind"] == item["kind"] and "/" not in entry["name"])
        place = f"/namespaces/{item['metadata']['namespace']}" if found["namespaced"] else ""
        return f"{root}{place}/{found['name']}"


async def _answer(response: aiohttp.ClientResponse) -> Answer:
    return Answer(response.status, await response.json(), response.headers.getall("Warning", []))


@asynccontextmanager
async def cluster(folder: Path) -> AsyncGenerator[Api]:
    """Run an empty cluster inside the block; its data is in `folder`."""
    with ExitStack() as ports:
        etcd_port, peer_port, port = (ports.enter_context(reserve_port("cluster", 0)) for _ in range(3))
        async with _serving(folder, etcd_port, peer_port, port) as api:
            yield api


@asynccontextmanager
async def _serving(folder: Path, etcd_port: int, peer_port: int, port: int) -> AsyncGenerator[Api]:
    etcd_url, peer_url = f"http://127.0.0.1:{etcd_port}", f"http://127.0.0.1:{peer_port}"
    token = secrets.token_hex()
    (folder / "tokens.csv").write_text(f"{token},admin,admin\n")
    await _run("openssl", "genrsa", "-out", str(folder / "accounts.key"))
    etcd = [
        *("--data-dir", str(folder / "etcd"), "--unsafe-no-fsync", "--log-level", "error"),
        *("--listen-client-urls", etcd_url, "--advertise-client-urls", etcd_url),
        *("--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url),
        *("--initial-cluster", f"default={peer_url}"),
    ]
    apiserver = [
        *("--etcd-servers", etcd_url, "--bind-address", "127.0.0.1", "--secure-port", str(port)),
        *("--cert-dir", str(folder), "--token-auth-file", str(folder / "tokens.csv")),
        *("--authorization-mode", "AlwaysAllow", "--service-cluster-ip-range", "10.0.0.0/24"),
        *("--service-account-issuer", "https://headrace.invalid"),
        *("--service-account-key-file", str(folder / "accounts.key")),
        *("--service-account-signing-key-file", str(folder / "accounts.key")),
    ]
    async with (
        _process(folder, await _compiled(ETCD), *etcd),
        _process(folder, await _compiled(APISERVER), *apiserver) as server,
    ):
        async with asyncio.timeout(START_TIMEOUT_S):
            while not (folder / "apiserver.crt").exists():
                assert server.returncode is None, (folder / "kube-apiserver.log").read_text()
                await asyncio.sleep(0.1)
        trust = ssl.create_default_context(cafile=str(folder / "apiserver.crt"))
        headers = {"Authorization": f"Bearer {token}"}
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust), headers=headers) as http:
            api = Api(http, f"https://127.0.0.1:{port}")
            async with asyncio.timeout(START_TIMEOUT_S):
                while not await _is_ready(api):
                    assert server.returncode is None, (folder / "kube-apiserver.log").read_text()
                    await asyncio.sleep(0.2)
            yield api


async def _is_ready(api: Api) -> bool:
    try:
        async with api.http.get(f"{api.url}/readyz") as response:
            return response.status == 200
    except aiohttp.ClientConnectionError:
        return False


async def _compiled(package: str) -> str:
    """Return the program, from Go's cache if it has been compiled before."""
    async with asyncio.timeout(COMPILE_TIMEOUT_S):
        return (await _run("go", "tool", "-n", package)).strip()


async def _run(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(*command, cwd=MODULE, stdout=-1, stderr=-1)
    output, complaint = await process.communicate()
    assert process.returncode == 0, complaint.decode()
    return output.decode()


@asynccontextmanager
async def _process(folder: Path, *command: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    with (folder / f"{Path(command[0]).name}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.terminate()
            await process.wait()
