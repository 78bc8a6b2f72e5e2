"""Configuration in the audit log: every accepted state, and each refusal once, sent over a real server."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import Overloaded
from headrace.v1 import audit_pb2
from headrace.v1.audit_pb2_grpc import add_AuditServiceServicer_to_server
from services.memory.audit import AuditService
from services.memory.storage.audit import AuditTrail
from services.orchestrator.agents.registry import Registry
from services.orchestrator.operating.config_audit import ConfigAudit, read_collecting
from services.runtime.auth.audit_records import AuditRecords
from services.runtime.auth.callers import ORCHESTRATOR
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import open_channel
from services.runtime.rpc.server import GrpcService, serving_grpc
from tests.support.facade.audit import make_audit_trail


@asynccontextmanager
async def sending_to_memory(audit: ConfigAudit, *services: AuditService) -> AsyncGenerator[tuple[AuditRecords, Any]]:
    """Send what is noted to a memory with these services."""
    served = [
        GrpcService("headrace.v1.AuditService", service, add_AuditServiceServicer_to_server) for service in services
    ]
    async with (
        serving_grpc(ServerSettings(listen="127.0.0.1:0", drain_s=1), served) as running,
        open_channel(running.addresses[0], ()) as channel,
        asyncio.timeout(30),
    ):
        records = AuditRecords(channel, ORCHESTRATOR)
        task = asyncio.create_task(audit.run_records(records))
        yield records, task
        task.cancel()


async def read_records(trail: AuditTrail, count: int) -> list[dict[str, Any]]:
    while len(lines := await trail.store.read_behind("", 0, 9)) < count:
        await asyncio.sleep(0.01)
    return [json.loads(line) for line in lines]


async def test_accepted_and_refused_configuration_is_recorded(tmp_path: Path) -> None:
    trail, audit, registry = make_audit_trail(), ConfigAudit(), Registry(tmp_path)

    def read() -> None:
        audit.note("agents", read_collecting(registry.reload))

    read()
    (tmp_path / "writer.json").write_text("{")
    read()
    read()
    (tmp_path / "writer.json").unlink()
    read()
    async with sending_to_memory(audit, AuditService(trail)):
        records = await read_records(trail, 3)
    assert [(record["event"], record["part"]) for record in records] == [
        ("config.taken", "agents"),
        ("config.refused", "agents"),
        ("config.taken", "agents"),
    ]
    assert records[1]["file"] == "writer.json"
    assert records[1]["problem"]


async def test_a_record_that_memory_refuses_is_sent_again() -> None:
    trail = make_audit_trail()

    class BusyOnce(AuditService):
        is_busy = True

        async def RecordAudit(self, request: Any, context: Any) -> audit_pb2.RecordAuditResponse:
            if self.is_busy:
                self.is_busy = False
                raise Overloaded("try again later")
            return await super().RecordAudit(request, context)

    audit = ConfigAudit()
    async with sending_to_memory(audit, BusyOnce(trail)):
        for part in ("agents", "modes"):
            audit.note(part, frozenset())
        assert [record["part"] for record in await read_records(trail, 2)] == ["agents", "modes"]


async def test_a_memory_without_an_audit_log_does_not_stop_the_orchestrator() -> None:
    audit = ConfigAudit()
    audit.note("agents", frozenset())
    async with sending_to_memory(audit) as (records, task):
        with pytest.raises(Overloaded, match="UNIMPLEMENTED"):
            await records.record("config.taken", None)
        ended, _ = await asyncio.wait([task], timeout=0.2)
        assert not ended
