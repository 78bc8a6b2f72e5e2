"""A world: starts, kills and partitions its services; everything in it depends on the seed alone."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from contextvars import Context
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from headrace.v1 import llm_pb2_grpc, tools_pb2_grpc
from services.facade.config import Config as FacadeConfig
from services.facade.service import serve
from services.llm_gateway.config import Config as GatewayConfig
from services.llm_gateway.server import gateway
from services.memory.config import Config as MemoryConfig
from services.orchestrator.config import Config as OrchestratorConfig
from services.orchestrator.server import orchestrator
from services.runtime.auth.settings import AuthSettings
from services.runtime.local.network import NETWORK
from services.runtime.process.config import ProcessSettings, ServerSettings
from services.runtime.rpc.channels import open_channel
from services.runtime.rpc.server import GrpcService, serving_grpc
from trials.simulation.outside.model import Model
from trials.simulation.outside.outside import Outside
from trials.simulation.outside.provider import Provider
from trials.simulation.outside.receiver import Receiver
from trials.simulation.outside.tools import Tools
from trials.simulation.plan import FACADE, MEMORY, ORCHESTRATOR, POSTGRES, TOOLS, Plan
from trials.simulation.postgres.database import Database
from trials.simulation.story import Story
from trials.simulation.world.definitions import FACADE_HOST, HOST, write_definitions
from trials.simulation.world.loop import SimulatedLoop
from trials.simulation.world.memory import run_memory
from trials.simulation.world.network import KEEPALIVE_S, ProcessNetwork, Wire
from trials.simulation.world.processes import PROCESS, Process, SimulatedClock
from trials.simulation.world.sockets import Listener, Sockets
from trials.simulation.world.storage import Storage

Main: TypeAlias = Callable[[], Coroutine[Any, Any, None]]

KILLED = 137
"""Exit code of processes killed by a power failure."""

RESTART_S = 1.0

LEASE_S = 30.0

PARK_AFTER_S = (0.4, 5.0)
"""Delay before runs are parked; in every other world it is very short."""

ENDED = "task ended by an error"
"""Log event of people, judges and services that fail."""

LOOK_MS = 20_000
"""Interval of checks for changed definition files: long, since none change in a world, and each check costs time."""

AGENTS_POLL_S = 30.0
"""Interval of checks for tenants' agents: longer than a deployment's, since a world stores none."""

ERASURES_LOOK_S, NO_ERASURES_LOOK_S = 5.0, 60.0
"""Interval of checks for erasures; the services' default in worlds with an erasure."""

SCHEDULES_LOOK_S, NO_SCHEDULES_LOOK_S = 5.0, 60.0
"""Interval of checks for due schedules; the services' default in worlds with schedules."""

DRAIN_S = 3.0

OPEN, BY_PEERS = AuthSettings(), AuthSettings(auth="peers", internal_token="of this world alone, and known to all")
"""Either all callers are one user, or callers act for users as a facade does."""

DRIFT = 0.000_5
"""Greatest drift of wrong clocks: NTP's greatest slew."""

TIDYING_S = 1.0
"""Time after a process's end in which its leftovers may still end."""


class World:
    def __init__(self, plan: Plan, folder: Path, loop: SimulatedLoop) -> None:
        self.seed, self.loop = str(plan.seed), loop
        seed = self.seed
        self.random = Random(f"{seed}/world")
        self.story = Story(loop)
        self.wire = Wire(loop, Random(f"{seed}/network"), self.story)
        self.outside = Outside(Random(f"{seed}/outside"), self.story, gate_rule=plan.gate_rule)
        self.receiver = Receiver(self.outside)
        self.hooked_ms: float | None = None
        """Start time of the webhook's subscription; None: there is no webhook."""
        self.auth = BY_PEERS if plan.gate_rule else OPEN
        self.has_users = bool(plan.gate_rule)
        self.has_facade = plan.has_facade
        self.skew_s = plan.skew_s
        self.storage = Storage(folder / "data", Random(f"{seed}/disk"), self.story, self._end_memory)
        self.bug = ""
        """Name of a planted bug (trials/simulation/planted/bugs.py)."""
        self.logged: list[dict[str, Any]] = []
        """Log events of the services."""
        self._folder, self._has_provider, self._has_schedules = folder, plan.has_provider, bool(plan.schedules)
        self._has_erasure = plan.erasure is not None
        self.sockets = Sockets(loop, Random(f"{seed}/sockets"), self.wire)
        self.sockets.servers[HOST] = Listener(lambda: Provider(self.outside))
        self.database: Database | None = None
        """Memory's database; None: memory stores chats in a folder."""
        if plan.has_postgres:
            self.database = Database(folder / POSTGRES, loop, self.wire, Random(f"{seed}/postgres"), self.story)
            self.wire.on_mend = self._release_all
        self._starts: dict[str, int] = {}
        self.processes: dict[str, Process] = {}
        """The newest process of each name."""
        self.all_processes: list[Process] = []
        self.left: list[str] = []
        """Leftovers of processes that ended normally."""
        self.orchestrators, self.gateways = plan.orchestrators, plan.llm_gateways
        self.orchestrator_address = ",".join(f"local:{name}" for name in self.orchestrators)
        self.memories = plan.memory_services
        self.memory_address = ",".join(f"local:{name}" for name in self.memories)
        self._gateway_address = ",".join(f"local:{name}" for name in self.gateways)
        self.services: dict[str, Main] = {
            **{name: self._make_memory(name) for name in self.memories},
            TOOLS: self._run_tools,
            **{name: self._make_gateway(name) for name in self.gateways},
            **{name: self._make_orchestrator(name) for name in self.orchestrators},
            **({FACADE: self._run_facade} if plan.has_facade else {}),
        }

    def _release_all(self) -> None:
        self.sockets.release()
        if self.database is not None:
            self.database.release()

    def start(self, name: str) -> None:
        self.spawn(name, self.services[name])

    def spawn(self, name: str, main: Main) -> Process:
        """Start a process that runs `main`."""
        number = self._starts[name] = self._starts.get(name, 0) + 1
        process = Process(name, number, self._on_death, self._on_finish)
        self.processes[name] = process
        self.all_processes.append(process)
        network = ProcessNetwork(self.wire, process)
        process.start(self.loop, main, self.seed, self._make_clock(name), lambda: NETWORK.set(network))
        return process

    def _make_clock(self, name: str) -> SimulatedClock:
        """Return the clock of a machine; the clocks of people and judges are right."""
        if name not in self.services or not self.skew_s:
            return SimulatedClock(self.loop)
        # All memory services share one clock: the judges compare times in the log with each other.
        random = Random(f"{self.seed}/clock/{MEMORY if name in self.memories else name}")
        return SimulatedClock(self.loop, random.uniform(-self.skew_s, self.skew_s), random.uniform(-DRIFT, DRIFT))

    def tell_owners_ms(self, run_id: str, at_s: float) -> int:
        """Return the Unix milliseconds on the clock of the run's first owner at `at_s`."""
        name = self.wire.history.find_owner(run_id).removeprefix("local:")
        return self._make_clock(name).tell_ns(at_s) // 1_000_000

    def is_up(self, name: str) -> bool:
        process = self.processes.get(name)
        return process is not None and not process.is_dead

    def restart(self, name: str) -> None:
        """Start a service unless it has been started already."""
        if not self.is_up(name):
            self.story.tell(f"{name} starts again")
            self.start(name)

    async def stop_all(self) -> None:
        """Stop all services as an operator does, callers before the services that they call."""
        facades = [FACADE] if FACADE in self.services else []
        for names in (facades, self.orchestrators, [*self.gateways, TOOLS], self.memories):
            for name in names:
                self.processes[name].stop()
            for name in names:
                await self.processes[name].ended.wait()
        await asyncio.sleep(2 * TIDYING_S)  # for those who have asked, too

    def _end_memory(self) -> None:
        self.processes[MEMORY].exit(KILLED)

    def _on_death(self, process: Process) -> None:
        # A lost machine closes nothing; a killed process's machine closes its sockets.
        is_silent = self.random.random() < 0.2
        notice_s = KEEPALIVE_S if is_silent else self.random.uniform(0.0001, 0.005)
        self.wire.lose_process(process, notice_s)
        self.sockets.lose_process(process)
        if self.database is not None:
            self.database.lose_process(process, notice_s)
        how = "vanishes with its machine" if is_silent else "is killed"
        if process.exit_code is None and process.name in self.services:
            self.story.bite("kill", process.name)
        if process.exit_code not in (None, KILLED):
            error = process.task.exception() if process.task is not None and process.task.done() else None
            how = f"ends itself with {process.exit_code} ({error!r:.120})"
        if process.name not in self.services:
            error = process.task.exception() if process.task is not None and process.task.done() else None
            self.note_failure(process.name, repr(error))
        elif process.exit_code not in (None, KILLED):
            # As the process's supervisor would.
            self.loop.call_later(RESTART_S, self.restart, process.name, context=Context())
        self.story.tell(f"{process.name} {how} in its turn {process.turns}", count="vanished" if is_silent else "ended")

    def _on_finish(self, process: Process) -> None:
        self.loop.call_later(TIDYING_S, self._bury_finished, process, context=Context())

    def _bury_finished(self, process: Process) -> None:
        """Record the leftovers of a process that ended normally; its machine closes the rest."""
        if process.is_dead:
            return
        tasks = [repr(task.get_coro()) for task in process.tasks if not task.done()]
        open_ends = [*self.wire.list_left(process), *self.sockets.list_left(process)]
        if left := [*tasks, *open_ends, *self._list_files(process)]:
            self.left.append(f"{process.name} has ended and left {left}")
        process.bury()
        self.wire.lose_process(process, 0.001)
        self.sockets.lose_process(process)
        if process.name in self.services:
            self.story.tell(f"{process.name} has stopped", count="stopped")

    def _list_files(self, process: Process) -> list[str]:
        if self.database is not None:
            return self.database.list_left(process)
        return self.storage.list_open() if process.name == MEMORY else []

    def note_failure(self, process: str, error: object) -> None:
        """Log an unhandled failure, for the judges."""
        self.logged.append({"event": ENDED, "level": "critical", "exception": f"{error}", "process": process})

    def forget_all(self) -> None:
        """Drop the objects of dead processes; their `finally` blocks run now, without effect."""
        for process in self.all_processes:
            process.tasks.clear()
            process.task = None

    def _make_memory(self, name: str) -> Main:
        config, store = MemoryConfig(server=self._serve(name)), self.database or self.storage
        return lambda: run_memory(config, self._gateway_address, self.auth, self.receiver.send, store, self.bug)

    def _make_gateway(self, name: str) -> Main:
        async def run() -> None:
            if self._has_provider:
                config_dir = write_definitions(self._folder, self.bug)
                config = GatewayConfig(server=self._serve(name), config_dir=config_dir, replicas=len(self.gateways))
                async with gateway(config, {}, look_ms=LOOK_MS):
                    await PROCESS.get().wait_for_stop()
                return
            servicer = Model(self.outside)  # pyright: ignore[reportAbstractUsage] - two RPCs are asked
            await self._run_scripted(name, "LlmService", servicer, llm_pb2_grpc.add_LlmServiceServicer_to_server)

        return run

    async def _run_facade(self) -> None:
        config = FacadeConfig(
            host=FACADE_HOST,
            orchestrator_address=self.orchestrator_address,
            memory_address=self.memory_address,
            tools_address=f"local:{TOOLS}",
            process=ProcessSettings(transport="local", drain_s=DRAIN_S, auth=self.auth),
        )
        addresses = (config.orchestrator_address, config.memory_address, config.tools_address)
        async with AsyncExitStack() as stack:
            channels = [await stack.enter_async_context(open_channel(address)) for address in addresses]
            peers: dict[str, Any] = dict(zip((ORCHESTRATOR, MEMORY, TOOLS), channels, strict=True))
            await stack.enter_async_context(serve(config, peers))
            await PROCESS.get().wait_for_stop()

    async def _run_tools(self) -> None:
        servicer = Tools(self.outside)  # pyright: ignore[reportAbstractUsage] - five RPCs are asked
        await self._run_scripted(TOOLS, "ToolService", servicer, tools_pb2_grpc.add_ToolServiceServicer_to_server)

    def _make_orchestrator(self, name: str) -> Main:
        async def run() -> None:
            config_dir = write_definitions(self._folder, self.bug)
            config = OrchestratorConfig(
                server=self._serve(name),
                config_dir=config_dir,
                refresh_interval_ms=LOOK_MS,
                lease_s=LEASE_S,
                schedule_look_s=SCHEDULES_LOOK_S if self._has_schedules else NO_SCHEDULES_LOOK_S,
                erasures_look_s=ERASURES_LOOK_S if self._has_erasure else NO_ERASURES_LOOK_S,
                park_after_s=PARK_AFTER_S[int(self.seed) % len(PARK_AFTER_S)],
                memory_address=self.memory_address,
                llm_gateway_address=self._gateway_address,
                tools_address=f"local:{TOOLS}",
            )
            object.__setattr__(config, "agents_poll_s", AGENTS_POLL_S)
            async with orchestrator(config):
                await PROCESS.get().wait_for_stop()
            if self.bug == "left task":
                asyncio.create_task(asyncio.Event().wait())  # noqa: RUF006 - that is the bug

        return run

    def _serve(self, name: str) -> ServerSettings:
        return ServerSettings(listen=f"local:{name}", transport="local", drain_s=DRAIN_S, auth=self.auth)

    async def _run_scripted(self, name: str, service: str, servicer: Any, add: Any) -> None:
        async with serving_grpc(self._serve(name), [GrpcService(f"headrace.v1.{service}", servicer, add)]):
            await PROCESS.get().wait_for_stop()
