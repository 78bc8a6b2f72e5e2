"""Events that services record in memory's audit log, including refused sign-ins.

Refused sign-ins from one address within a minute become one line, however many they are.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias

import grpc
import msgspec
import structlog

from headrace.errors import HeadraceError, Overloaded
from headrace.streams import rpc_errors
from headrace.v1 import audit_pb2
from headrace.v1.audit_pb2_grpc import AuditServiceStub
from services.runtime.auth.identity import Identity, acting_as
from services.runtime.calls.addresses import find_network

Record: TypeAlias = Callable[[str, int], Awaitable[None]]
"""Records the number of refusals of an address within a minute."""

MINUTE_S = 60.0

ADDRESSES_MAX = 1_000
"""Maximum addresses counted separately in a minute; all others share a count."""

OTHERS = "others"

EVENT = "sign_in.refused"

CLIENT_ADDRESS = "x-headrace-client-address"
"""Header in which a facade that forwards credentials (deploy/gateway) sends the address of its client."""

LAST_S = 2.0
"""Time to record the remaining counts when the service stops."""

log = structlog.get_logger()


class RefusedSignIns:
    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def note(self, peer: str) -> None:
        """Count a refusal of a peer, given in the servers' form: `ipv4:HOST:PORT`, a host, or something else."""
        address = _find_address(peer)
        known = address in self._counts or len(self._counts) < ADDRESSES_MAX
        self._counts[address if known else OTHERS] += 1

    async def record_all(self, record: Record) -> None:
        """Record all counts; those that cannot be recorded now are kept for the next time."""
        counts, self._counts = self._counts, Counter()
        while counts:
            address, count = counts.popitem()
            try:
                await record(address, count)
            except HeadraceError as error:
                self._counts += counts + Counter({address: count})
                log.warning("refused sign-ins not recorded", addresses=len(self._counts), reason=error.reason)
                return


@asynccontextmanager
async def recording_refused(
    refused: RefusedSignIns, record: Record | None, every_s: float = MINUTE_S
) -> AsyncGenerator[None]:
    """Record refused sign-ins while inside the block; None records none."""
    if record is None:
        yield
        return
    recording = asyncio.create_task(_record_regularly(refused, record, every_s))
    try:
        yield
    finally:
        recording.cancel()
        await asyncio.wait([recording])
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_S):
                await refused.record_all(record)


async def _record_regularly(refused: RefusedSignIns, record: Record, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        try:
            await refused.record_all(record)
        except Exception:
            log.exception("refused sign-ins not recorded")  # in the next minute the address counts anew


def find_client_address(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """Return the address of the facade's client; empty if the facade sent none."""
    return next((str(value) for key, value in metadata if key == CLIENT_ADDRESS), "")


def _find_address(peer: str) -> str:
    host = peer
    if peer.startswith(("ipv4:", "ipv6:")):
        host = peer.partition(":")[2].rpartition(":")[0].strip("[]")
    try:
        return find_network(host)
    except ValueError:
        return peer[:64] or "unknown"


RECORD_TIMEOUT_S = 10.0


class AuditRecords:
    """Client of memory's audit log, for the services of the suite."""

    def __init__(self, memory: grpc.aio.Channel, service: str) -> None:
        # Any: the stub's types also cover synchronous channels, which makes each RPC a union.
        self._stub: Any = AuditServiceStub(memory)
        self._service = service

    async def record(self, event: str, who: Identity | None, **details: str | int | bool) -> None:
        """Store a line in the audit log; `who` is None if the user is unknown. Raises HeadraceError."""
        request = audit_pb2.RecordAuditRequest(event=event, details=msgspec.json.encode(details).decode())
        if who is not None:
            request.tenant, request.by, request.credential = who.tenant, who.user, who.credential
        try:
            with acting_as(None), rpc_errors():
                await self._stub.RecordAudit(request, timeout=RECORD_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:  # memory did not answer in time, or its version has no audit log
            raise Overloaded(f"the audit log cannot be written: {error.code().name}; try again later") from error

    def count_refused(self) -> Record:
        async def record(address: str, count: int) -> None:
            await self.record(EVENT, None, address=address, count=count, service=self._service)

        return record
