"""Two replicas of each service as local processes, over PostgreSQL and shared folders, with links that can be cut.

Each caller uses its own link to each callee: from each orchestrator to each memory, gateway and tools service;
from each facade to each orchestrator; between the orchestrators; from each memory to each of the two database
servers; and between the database servers. The database's links are Unix sockets, which belong to no network.
"""

import asyncio
import json
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from services.simulator.server import Simulator, simulator
from tests.support.cluster.links import link
from tests.support.cluster.pair import SOCKET, Pair, pair
from trials.chaos import namespaces
from trials.chaos.ways import Cut, Sockets, Ways

NAMES = ("a", "b")
START_TIMEOUT_S = 600.0
STOP_TIMEOUT_S = 300.0

LEASE_S = 3.0
DRAIN_S = 1.0
FINISH_S = 10.0
"""How long stopping services wait for work in progress: callers only briefly, gateways and tools as long as an
answer or a command takes, as in deploy/kubernetes.
"""

SERVICES = ("memory", "llm_gateway", "tools", "orchestrator", "facade")
"""Services in the order in which they start."""

UNIX = "unix:"

CALLED_BY_ORCHESTRATOR = ("memory", "llm_gateway", "tools")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Spec:
    """A replica: its command's environment, and its address."""

    service: str
    name: str
    at: str
    environment: dict[str, str]

    @property
    def key(self) -> str:
        return f"{self.service}-{self.name}"


@dataclass
class Cluster:
    """The running cluster, and the ways in which a test may disturb it."""

    urls: list[str]
    """URLs of the facades."""
    data_dir: Path
    database: Pair
    simulator: Simulator
    ways: Ways
    servers: dict[Path, str] = field(default_factory=dict[Path, str])
    """Names of the database servers, by folder."""
    links: dict[str, Cut] = field(default_factory=dict[str, Cut])
    """Links by caller and callee."""
    specs: dict[str, Spec] = field(default_factory=dict[str, Spec])
    processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict[str, asyncio.subprocess.Process])
    logs: Path = Path()

    def links_to_primary(self) -> list[Cut]:
        """Return the links to the primary, from all users of the database and from its standby."""
        name = self.servers[self.database.primary.folder]
        return [link for key, link in self.links.items() if key.endswith(f"~database-{name}")]

    async def start(self, key: str) -> None:
        """Start a replica; it accepts connections when this returns."""
        spec = self.specs[key]
        with suppress(FileNotFoundError):
            os.unlink(spec.at.removeprefix(UNIX))  # a socket left by a killed replica
        with (self.logs / f"{key}.log").open("ab") as log:
            self.processes[key] = await asyncio.create_subprocess_exec(
                *(*self.ways.before(key), sys.executable, "-m", f"services.{spec.service}"),
                env=os.environ | spec.environment,
                stderr=log,
                stdout=log,
                start_new_session=True,
            )
        async with asyncio.timeout(START_TIMEOUT_S):
            while not await self._answers(spec):
                assert self.processes[key].returncode is None, (self.logs / f"{key}.log").read_text()[-3000:]
                await asyncio.sleep(0.05)

    async def kill(self, key: str) -> None:
        """Kill a replica with SIGKILL."""
        process = self.processes[key]
        process.kill()
        await process.wait()

    async def stop(self, key: str) -> None:
        """Stop a replica with SIGTERM and wait for its end."""
        process = self.processes[key]
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await process.wait()

    async def _answers(self, spec: Spec) -> bool:
        try:
            if spec.at.startswith(UNIX):
                _, writer = await asyncio.open_unix_connection(spec.at.removeprefix(UNIX))
            else:
                host, _, port = spec.at.rpartition(":")
                _, writer = await asyncio.open_connection(host, int(port))
        except OSError:
            return False
        writer.close()
        return True


@asynccontextmanager
async def running(config_dir: Path, data_dir: Path, logs: Path) -> AsyncGenerator[Cluster]:
    """Run the cluster with the agents and tools in `config_dir`, where providers.json is written."""
    with tempfile.TemporaryDirectory(prefix="hc-", ignore_cleanup_errors=True) as name, pair() as database:
        folder = Path(name)  # a socket's path has at most 107 bytes
        async with AsyncExitStack() as stack:
            ways = _ways(folder, stack)
            sim = await stack.enter_async_context(simulator(host=ways.host))
            write_providers(config_dir, sim)
            urls = [f"http://{ways.at(f'facade-{name}')}" for name in NAMES]
            cluster = Cluster(urls, data_dir, database, sim, ways, logs=logs)
            plan = _Plan(cluster, folder, stack)
            await plan.link_all()
            await plan.link_database()
            await asyncio.to_thread(database.follow)
            for key, spec in plan.specs(config_dir).items():
                cluster.specs[key] = spec
            stack.push_async_callback(_stop_all, cluster)
            for service in SERVICES:
                await asyncio.gather(*(cluster.start(f"{service}-{name}") for name in NAMES))
            yield cluster


def _ways(folder: Path, stack: AsyncExitStack) -> Ways:
    if namespaces.is_possible():
        replicas = [f"{service}-{name}" for service in SERVICES for name in NAMES]
        return stack.enter_context(namespaces.network(replicas))
    log.warning("no network namespaces: links are sockets that the test controls")
    return Sockets(folder, stack)


class _Plan:
    """Creates the links, and assigns them to callers."""

    def __init__(self, cluster: Cluster, folder: Path, stack: AsyncExitStack) -> None:
        self._cluster = cluster
        self._folder = folder
        self._stack = stack
        self._through: dict[str, str] = {}
        """Addresses by link."""

    async def link_all(self) -> None:
        for name, other in zip(NAMES, reversed(NAMES), strict=True):
            for service in CALLED_BY_ORCHESTRATOR:
                for callee in NAMES:
                    await self._link(f"orchestrator-{name}", f"{service}-{callee}")
            for callee in NAMES:
                await self._link(f"facade-{name}", f"orchestrator-{callee}")
            await self._link(f"orchestrator-{other}", f"orchestrator-{name}")

    async def link_database(self) -> None:
        database = self._cluster.database
        self._cluster.servers = dict(zip(sorted(database.ways), NAMES, strict=True))
        for target, server in self._cluster.servers.items():
            for name in NAMES:
                way = self._folder / f"memory-{name}~database-{server}"
                await self._add_link(way.name, way / SOCKET, target / SOCKET)
        for folder, other in list(database.ways.items()):
            # PostgreSQL runs as another user, which cannot enter our folders.
            way = database.ways[folder] = folder / "other"
            name = f"database-{self._cluster.servers[folder]}~database-{self._cluster.servers[other]}"
            await self._add_link(name, way / SOCKET, other / SOCKET)
            (way / SOCKET).chmod(0o777)

    async def _link(self, caller: str, replica: str) -> None:
        key = f"{caller}~{replica}"
        self._through[key], self._cluster.links[key] = await self._cluster.ways.link(caller, replica)

    async def _add_link(self, name: str, path: Path, target: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        self._cluster.links[name] = await self._stack.enter_async_context(link(path, target))

    def specs(self, config_dir: Path) -> dict[str, Spec]:
        shared = {
            "HEADRACE_TRANSPORT": "h2",
            "HEADRACE_CONFIG_DIR": str(config_dir),
            "HEADRACE_DATA_DIR": str(self._cluster.data_dir),
            "HEADRACE_ALLOW_UNAUTHENTICATED": "true",  # others cannot reach the test's network
            "HEADRACE_INTERNAL_TOKEN": secrets.token_urlsafe(32),
        }
        found: dict[str, Spec] = {}
        for name in NAMES:
            for service in SERVICES:
                prefix = f"HEADRACE_{service.upper()}_"
                own = {prefix + key: value for key, value in self._own(service, name).items()}
                spec = Spec(service, name, self._cluster.ways.at(f"{service}-{name}"), shared | own)
                spec.environment["HEADRACE_DRAIN_S"] = str(FINISH_S if service in ("llm_gateway", "tools") else DRAIN_S)
                if service == "memory":
                    ways = ",".join(str(self._folder / f"memory-{name}~database-{server}") for server in NAMES)
                    spec.environment["HEADRACE_DATABASE_URL"] = (
                        f"postgresql://headrace@/postgres?host={ways}&target_session_attrs=read-write"
                    )
                found[spec.key] = spec
        return found

    def _own(self, service: str, name: str) -> dict[str, str]:
        caller = f"{service}-{name}"
        listen = {"LISTEN": self._cluster.ways.at(caller)}
        match service:
            case "orchestrator":
                own = {f"{called.upper()}_ADDRESS": self._linked(caller, called) for called in CALLED_BY_ORCHESTRATOR}
                other = next(other for other in NAMES if other != name)
                advertise = self._through[f"orchestrator-{other}~{caller}"]
                return listen | own | {"ADVERTISE": advertise, "LEASE_S": str(LEASE_S)}
            case "facade":
                host, _, port = self._cluster.ways.at(caller).rpartition(":")
                plain = {f"{called.upper()}_ADDRESS": self._all(called) for called in ("memory", "tools")}
                called = {"ORCHESTRATOR_ADDRESS": self._linked(caller, "orchestrator")}
                return {"HOST": host, "PORT": port} | called | plain
            case "memory" | "tools":
                return listen | {"LLM_GATEWAY_ADDRESS": self._all("llm_gateway")}
            case _:
                return listen | {"REPLICAS": str(len(NAMES))}

    def _linked(self, caller: str, service: str) -> str:
        return ",".join(self._through[f"{caller}~{service}-{name}"] for name in NAMES)

    def _all(self, service: str) -> str:
        return ",".join(self._cluster.ways.at(f"{service}-{name}") for name in NAMES)


async def _stop_all(cluster: Cluster) -> None:
    for made in cluster.links.values():
        made.mend()
    # Callers first, so that no service loses a peer that it still needs.
    for service in ("facade", "orchestrator", "tools", "memory", "llm_gateway"):
        await asyncio.gather(*(cluster.stop(key) for key in cluster.processes if key.startswith(service)))


def write_providers(config_dir: Path, sim: Simulator) -> None:
    provider = {
        "key": "sim",
        "protocol": "openai",
        "baseUrl": sim.base_url,
        "models": [{"name": "sim-1"}],
        "retry": {"maxAttempts": 3},
    }
    (config_dir / "providers.json").write_text(json.dumps({"providers": [provider]}))
