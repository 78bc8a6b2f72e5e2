"""Configuration in the audit log: what is taken each time, what is refused once, over a real server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import Overloaded
from headrace.v1 import audit_pb2
from headrace.v1.audit_pb2_grpc import add_AuditServiceServicer_to_server
from services.memory.audit.rpcs import AuditService
from services.orchestrator.agents.registry import Registry
from services.orchestrator.operating.config_audit import ConfigAudit, read_collecting
from services.runtime.auth.callers import ORCHESTRATOR
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.audit_records import AuditRecords
from services.runtime.rpc.channels import open_channel
from services.runtime.rpc.server import GrpcService, serving_grpc
from tests.support.facade.audit import make_audit_trail


async def test_what_is_taken_and_refused_is_told(tmp_path: Path) -> None:
    trail = make_audit_trail()
    served = GrpcService("headrace.v1.AuditService", AuditService(trail), add_AuditServiceServicer_to_server)
    noted, registry = ConfigAudit(), Registry(tmp_path)

    def read() -> None:
        noted.note("agents", read_collecting(registry.reload))

    read()
    (tmp_path / "writer.json").write_text("{")
    read()
    read()
    (tmp_path / "writer.json").unlink()
    read()
    async with (
        serving_grpc(ServerSettings(listen="127.0.0.1:0", drain_s=1), [served]) as running,
        open_channel(running.addresses[0], ()) as channel,
        asyncio.timeout(30),
    ):
        telling = asyncio.create_task(noted.run_records(AuditRecords(channel, ORCHESTRATOR)))
        while len(lines := await trail.store.read_behind("", 0, 9)) < 3:
            await asyncio.sleep(0.01)
        telling.cancel()
    records = [json.loads(line) for line in lines]
    assert [(record["event"], record["part"]) for record in records] == [
        ("config.taken", "agents"),
        ("config.refused", "agents"),
        ("config.taken", "agents"),
    ]
    assert records[1]["file"] == "writer.json"
    assert records[1]["problem"]


async def test_what_memory_does_not_take_is_told_again() -> None:
    trail = make_audit_trail()

    class BusyOnce(AuditService):
        is_busy = True

        async def RecordAudit(self, request: Any, context: Any) -> audit_pb2.RecordAuditResponse:
            if self.is_busy:
                self.is_busy = False
                raise Overloaded("try again later")
            return await super().RecordAudit(request, context)

    served = GrpcService("headrace.v1.AuditService", BusyOnce(trail), add_AuditServiceServicer_to_server)
    noted = ConfigAudit()
    async with (
        serving_grpc(ServerSettings(listen="127.0.0.1:0", drain_s=1), [served]) as running,
        open_channel(running.addresses[0], ()) as channel,
        asyncio.timeout(30),
    ):
        telling = asyncio.create_task(noted.run_records(AuditRecords(channel, ORCHESTRATOR)))
        for part in ("agents", "modes"):
            noted.note(part, frozenset())
        while len(lines := await trail.store.read_behind("", 0, 9)) < 2:
            await asyncio.sleep(0.01)
        telling.cancel()
    assert [json.loads(line)["part"] for line in lines] == ["agents", "modes"]


async def test_a_memory_without_an_audit_log_is_no_end_of_the_orchestrator() -> None:
    noted = ConfigAudit()
    noted.note("agents", frozenset())
    async with (
        serving_grpc(ServerSettings(listen="127.0.0.1:0", drain_s=1), []) as running,
        open_channel(running.addresses[0], ()) as channel,
        asyncio.timeout(30),
    ):
        records = AuditRecords(channel, ORCHESTRATOR)
        with pytest.raises(Overloaded, match="UNIMPLEMENTED"):
            await records.record("config.taken", None)
        telling = asyncio.create_task(noted.run_records(records))
        done, _ = await asyncio.wait([telling], timeout=0.2)
        assert not done
        telling.cancel()
