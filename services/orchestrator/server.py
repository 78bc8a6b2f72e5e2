"""Builds the orchestrator; its parts are closed in reverse order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import grpc

from headrace.v1 import agent_pb2_grpc, data_pb2_grpc, gates_pb2_grpc, operator_pb2_grpc
from services.orchestrator import metrics
from services.orchestrator.agents.grants import NAME as GRANTS
from services.orchestrator.agents.grants import GrantsFile
from services.orchestrator.agents.mode_files import ModeFiles
from services.orchestrator.agents.registry import Registry
from services.orchestrator.cluster.forwarding import Forwarder, PeerChannels
from services.orchestrator.cluster.schedules import DueSchedules
from services.orchestrator.cluster.takeover import Takeover
from services.orchestrator.config import CANCEL, FILES, Config, read_environment, read_secrets
from services.orchestrator.data.data_service import DataService
from services.orchestrator.data.erasing import Erasing
from services.orchestrator.lifecycle import leases
from services.orchestrator.lifecycle.admission.admission import Admission, KeyLimits
from services.orchestrator.lifecycle.admission.fair_use import FairUse, NoLimits
from services.orchestrator.lifecycle.live_runs import HeldRuns, LiveRuns
from services.orchestrator.lifecycle.parking import Parking
from services.orchestrator.lifecycle.pins import Pins
from services.orchestrator.lifecycle.publishing import FREE_TOOLS, Publishing, read_changes
from services.orchestrator.lifecycle.queries import QueryLog
from services.orchestrator.lifecycle.runs import Runs
from services.orchestrator.money.budgets import BudgetsFile
from services.orchestrator.money.limits import LimitsInForce
from services.orchestrator.operating.config_audit import ConfigAudit, read_collecting
from services.orchestrator.operating.operator_service import OperatorService
from services.orchestrator.peers import stored_runs
from services.orchestrator.peers.embeddings import Embeddings
from services.orchestrator.peers.remote.agents import RemoteAgents
from services.orchestrator.peers.remote.http import Credentials, Http
from services.orchestrator.peers.stubs import Peers, patiently
from services.orchestrator.people.gate_service import GateService
from services.orchestrator.run.approvals.rules import RulesFile
from services.orchestrator.run.run import RunServices
from services.orchestrator.service import AgentService
from services.runtime.auth.audit_records import AuditRecords
from services.runtime.auth.callers import ORCHESTRATOR
from services.runtime.auth.setup import following_memory_keys
from services.runtime.capacity import Capacity
from services.runtime.ending import guard_task
from services.runtime.files.file_watch import watching_paths
from services.runtime.net.allow_list import parse_allow_list
from services.runtime.rpc.channels import EDGE_MESSAGE_BYTES_MAX, FIND_KEY, build_caller_metadata, open_channel
from services.runtime.rpc.push_stream import Watches
from services.runtime.rpc.server import GrpcService, RunningServer, serving_grpc


@asynccontextmanager
async def orchestrator(config: Config) -> AsyncGenerator[RunningServer]:
    """Serve inside the block; entering waits for memory, leaving drains the runs."""
    shown = build_caller_metadata(config.server.auth, ORCHESTRATOR)
    async with AsyncExitStack() as stack:
        places = {name: getattr(config, f"{name}_address") for name in ("llm_gateway", "memory", "tools")}
        channels = {
            name: await stack.enter_async_context(open_channel(at, shown, find_key=FIND_KEY.get(name)))
            for name, at in places.items()
        }
        peers = Peers.from_channels(**channels)
        keys = await stack.enter_async_context(following_memory_keys(config.server.auth, channels["memory"]))
        await patiently(partial(stored_runs.list_unfinished, peers))
        audit, taken = AuditRecords(channels["memory"], ORCHESTRATOR), ConfigAudit()
        following = _following_definitions(config, taken)
        registry, rules, budgets, modes = await stack.enter_async_context(following)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        stack.callback(guard_task(group.create_task(taken.run_records(audit))).cancel)
        owner = leases.Owner(config.advertise or config.server.listen.partition(",")[0], config.lease_s)
        lanes = await stack.enter_async_context(PeerChannels(shown))
        fair_use = FairUse(config.tenant_runs_max, config.tenant_waiting_max)
        if config.server.auth.is_none:
            fair_use = NoLimits()
        capacity = Capacity(config.runs_max, is_shared=not config.server.auth.is_none)
        live = LiveRuns(capacity, fair_use)
        pins = Pins(peers, modes)
        key_limits = KeyLimits(keys, live, ends_runs=config.revoked_key_runs == CANCEL)
        admission = Admission(live, registry, pins, peers, capacity, fair_use, key_limits)
        publishing = await _open_publishing(peers, registry, pins)
        query_log = QueryLog(peers, owner, live, key_limits)
        services = _make_services(peers, group, registry, rules, budgets, modes, config.remote_allow)
        runs = Runs(live, admission, query_log, registry, services, group)
        stack.enter_context(metrics.exposing_runs(lambda: [run.state.name for run in live.all()]))
        held = HeldRuns()
        parking = Parking(live, held, peers, config.park_after_s, key_limits.may_park)
        takeover = Takeover(runs, held, registry, pins, peers, owner, key_limits.is_suspended)
        # Before the first run is taken over: with many of them, the first lease would end before the last is taken.
        stack.callback(guard_task(group.create_task(leases.keep(live.all, held, peers, owner))).cancel)
        await takeover.at_start()
        schedules = DueSchedules(runs, takeover, peers, registry.list_shared, config.schedule_look_s)
        stored_agents = registry.stored.follow(partial(read_changes, peers, may_lag=True), config.agents_poll_s)
        for background in (stored_agents, takeover.watch(), parking.watch(), schedules.watch(), lanes.tidy()):
            stack.callback(guard_task(group.create_task(background)).cancel)
        embeddings = Embeddings(peers, is_shared=not config.server.auth.is_none)
        relays = Forwarder(runs, takeover, lanes, owner.lease_s)
        erasing = Erasing(peers, relays, owner, config.erasures_look_s)
        stack.callback(guard_task(group.create_task(erasing.watch())).cancel)
        watches = Watches()
        gates = GateService(live, relays, peers, watches, audit, group, key_limits.check_requester)
        service = AgentService(registry, runs, gates, held, relays, peers, embeddings, publishing, pins, watches)
        limits = LimitsInForce(
            config=config,
            registry=registry,
            live=live,
            capacity=capacity,
            fair_use=fair_use,
            keys=keys,
            budgets=budgets,
            peers=peers,
        )
        data = DataService(peers)
        served = _list_services(service, gates, OperatorService(service, peers, owner, limits, audit), data)

        async def drain() -> None:
            watches.end_all()
            await parking.drain()
            await runs.drain(config.server.drain_s)

        yield await stack.enter_async_context(
            serving_grpc(
                config.server,
                served,
                peers=channels,
                is_configured=lambda: registry.is_loaded,
                drain=drain,
                message_bytes_max=EDGE_MESSAGE_BYTES_MAX,
                keys=keys,
                record_refused=audit.count_refused(),
            )
        )


def _make_services(
    peers: Peers,
    group: asyncio.TaskGroup,
    registry: Registry,
    rules: RulesFile,
    budgets: BudgetsFile,
    modes: ModeFiles,
    remote_allow: str,
) -> RunServices:
    return RunServices(
        peers,
        rules=rules,
        budgets=budgets,
        modes=modes,
        secrets=read_secrets(),
        grants=registry.grants,
        remotes=RemoteAgents(Http(parse_allow_list(remote_allow)), Credentials(read_environment()), group),
    )


async def _open_publishing(peers: Peers, registry: Registry, pins: Pins) -> Publishing:
    """Return the publisher of tenants' agents, after its first read."""
    publishing = Publishing(peers, registry, pins)
    try:
        await patiently(publishing.look)
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
            raise  # else memory is of an earlier version, in the middle of an upgrade
    return publishing


def _list_services(
    agents: AgentService, gates: GateService, operators: OperatorService, data: DataService
) -> list[GrpcService]:
    return [
        GrpcService("headrace.v1.AgentService", agents, agent_pb2_grpc.add_AgentServiceServicer_to_server),
        GrpcService("headrace.v1.GateService", gates, gates_pb2_grpc.add_GateServiceServicer_to_server),
        GrpcService("headrace.v1.OperatorService", operators, operator_pb2_grpc.add_OperatorServiceServicer_to_server),
        GrpcService("headrace.v1.DataService", data, data_pb2_grpc.add_DataServiceServicer_to_server),
    ]


@asynccontextmanager
async def _following_definitions(
    config: Config, taken: ConfigAudit
) -> AsyncGenerator[tuple[Registry, RulesFile, BudgetsFile, ModeFiles]]:
    """Read agents, modes and rules now, and inside the block again whenever one of their files changes."""
    agents_dir = config.agents_dir or config.config_dir / "agents"
    rules_path, budgets_path = config.config_dir / "approvals.yaml", config.config_dir / "budgets.yaml"
    grants = GrantsFile(config.config_dir / GRANTS)
    files_win = config.agents_precedence == FILES
    registry = Registry(agents_dir, config.default_agent, grants=grants, free_tools=FREE_TOOLS, files_win=files_win)
    rules, budgets = RulesFile(rules_path), BudgetsFile(budgets_path)
    modes_dir = config.config_dir / "modes"
    modes = ModeFiles(modes_dir)
    watched = [
        ("modes", modes_dir, modes.reload),
        ("agents", agents_dir, registry.reload),
        ("tenant_agents", config.config_dir / GRANTS, grants.reload),
        ("approvals", rules_path, rules.reload),
        ("budgets", budgets_path, budgets.reload),
    ]
    async with AsyncExitStack() as stack:
        for part, path, reload in watched:
            read, note = partial(read_collecting, reload), partial(taken.note, part)
            await stack.enter_async_context(watching_paths([path], read, note, interval_ms=config.refresh_interval_ms))
        yield registry, rules, budgets, modes
