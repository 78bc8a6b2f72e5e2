"""What a service tells memory's audit log."""

from __future__ import annotations

from typing import Any

import grpc
import msgspec

from headrace.errors import Overloaded
from headrace.streams import rpc_errors
from headrace.v1 import audit_pb2
from headrace.v1.audit_pb2_grpc import AuditServiceStub
from services.runtime.auth.identity import Identity, acting_as
from services.runtime.auth.refused_sign_ins import EVENT, Record

RECORD_TIMEOUT_S = 10.0


class AuditRecords:
    """The audit log of the memory service behind a channel, for a service of the suite."""

    def __init__(self, memory: grpc.aio.Channel, service: str) -> None:
        # Any: the stub's types know the RPCs of synchronous channels too, and so each as a union.
        self._stub: Any = AuditServiceStub(memory)
        self._service = service

    async def record(self, event: str, who: Identity | None, **details: str | int | bool) -> None:
        """Have a line stored; None: nobody is known. Raises HeadraceError."""
        request = audit_pb2.RecordAuditRequest(event=event, details=msgspec.json.encode(details).decode())
        if who is not None:
            request.tenant, request.by, request.credential = who.tenant, who.user, who.credential
        try:
            with acting_as(None), rpc_errors():
                await self._stub.RecordAudit(request, timeout=RECORD_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:  # it is late, or of a version without an audit log
            raise Overloaded(f"the audit log cannot be written: {error.code().name}; try again later") from error

    def count_refused(self) -> Record:
        async def record(address: str, count: int) -> None:
            await self.record(EVENT, None, address=address, count=count, service=self._service)

        return record
