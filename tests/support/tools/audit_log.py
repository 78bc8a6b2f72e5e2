"""A memory service that only stores the audit records it receives."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from headrace.errors import Overloaded
from headrace.v1 import audit_pb2, audit_pb2_grpc
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.server import GrpcService, serving_grpc

# Any: the stubs want every RPC implemented, by synchronous functions.
_AuditServicer: Any = audit_pb2_grpc.AuditServiceServicer


class AuditLog(_AuditServicer):
    """The audit log of such a memory service."""

    def __init__(self) -> None:
        self.address = ""
        self.records: list[tuple[str, str, dict[str, Any]]] = []
        """Event, user and details of each record."""
        self.is_full = False

    async def RecordAudit(self, request: Any, context: Any) -> audit_pb2.RecordAuditResponse:
        if self.is_full:
            raise Overloaded("the disk is full")
        self.records.append((request.event, request.by, json.loads(request.details)))
        return audit_pb2.RecordAuditResponse()


@asynccontextmanager
async def serving_audit() -> AsyncGenerator[AuditLog]:
    log = AuditLog()
    service = GrpcService("headrace.v1.AuditService", log, audit_pb2_grpc.add_AuditServiceServicer_to_server)
    async with serving_grpc(ServerSettings(listen="127.0.0.1:0", drain_s=0), [service]) as running:
        log.address = running.addresses[0]
        yield log
