"""Refused sign-ins are counted by address, within bounds, and recorded; alone and as a server records them."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import Overloaded, Unauthenticated
from headrace.streams import rpc_errors
from headrace.v1 import audit_pb2
from headrace.v1.audit_pb2_grpc import AuditServiceStub, add_AuditServiceServicer_to_server
from services.memory.audit import AuditService
from services.runtime.auth.audit_records import ADDRESSES_MAX, OTHERS, RefusedSignIns, recording_refused
from services.runtime.auth.callers import FACADE
from services.runtime.auth.identity import acting_as
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import build_caller_metadata, open_channel
from services.runtime.rpc.server import GrpcService, serving_grpc
from tests.support.facade.audit import make_audit_trail
from tests.support.issuing import key_settings


class Recorded(Counter[str]):
    lines = 0
    is_refusing = False

    async def __call__(self, address: str, count: int) -> None:
        if self.is_refusing:
            raise Overloaded("away")
        self.lines += 1
        self[address] += count


async def test_an_address_gets_one_line_however_often_it_is_refused() -> None:
    refused, recorded = RefusedSignIns(), Recorded()
    for peer in (
        "ipv4:10.0.0.7:50001",
        "ipv4:10.0.0.7:50002",
        "10.0.0.7",
        "ipv6:[2001:db8::1]:7",
        "ipv6:[2001:db8::2]:9",
    ):
        refused.note(peer)
    await refused.record_all(recorded)
    await refused.record_all(recorded)
    assert recorded == {"10.0.0.7": 3, "2001:db8::/64": 2}
    assert recorded.lines == 2


async def test_refusals_from_very_many_addresses_are_counted_together() -> None:
    refused, recorded = RefusedSignIns(), Recorded()
    for number in range(5 * ADDRESSES_MAX):
        refused.note(f"ipv4:10.{number >> 16}.{number >> 8 & 255}.{number & 255}:1")
    await refused.record_all(recorded)
    assert recorded.lines == ADDRESSES_MAX + 1
    assert recorded[OTHERS] == 4 * ADDRESSES_MAX


async def test_refusals_that_cannot_be_recorded_now_are_counted_later() -> None:
    refused, recorded = RefusedSignIns(), Recorded()
    refused.note("10.0.0.7")
    recorded.is_refusing = True
    await refused.record_all(recorded)
    refused.note("10.0.0.7")
    recorded.is_refusing = False
    async with recording_refused(refused, recorded):
        pass
    assert recorded == {"10.0.0.7": 2}


async def test_only_a_facade_can_name_the_address_of_a_refused_client(tmp_path: Path) -> None:
    auth = replace(key_settings(tmp_path, ada="acme/ada"), internal_token="of the suite" * 3)
    settings = ServerSettings(listen="127.0.0.1:0", drain_s=1, auth=auth)
    recorded = Recorded()
    servicer = AuditService(make_audit_trail())
    served = GrpcService("headrace.v1.AuditService", servicer, add_AuditServiceServicer_to_server)
    metadata = (("x-headrace-client-address", "10.9.8.7"), ("x-api-key", "of nobody"))
    async with serving_grpc(settings, [served], record_refused=recorded) as running:
        for caller_metadata in (build_caller_metadata(auth, FACADE), ()):
            async with open_channel(running.addresses[0], caller_metadata) as channel:
                stub: Any = AuditServiceStub(channel)
                for ask, request in (
                    (stub.ListAudit, audit_pb2.ListAuditRequest()),
                    (stub.RecordAudit, audit_pb2.RecordAuditRequest(event="key.made")),
                )[: 1 if caller_metadata else 2]:
                    with acting_as(None), pytest.raises(Unauthenticated), rpc_errors():
                        await ask(request, metadata=metadata)
    of_client = recorded.pop("10.9.8.7")
    assert (of_client, recorded.total()) == (1, 2)
