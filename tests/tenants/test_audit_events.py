"""Each RPC with an audit event in the contract is called once, and the audit log has its line."""

import json
import re
from pathlib import Path
from typing import Any

from headrace.v1 import audit_pb2, common_pb2
from services.facade.proto_routes import load_routes
from services.runtime.auth.callers import find_scope
from tests.support.contract import RPCS
from tests.support.tenants.requests import Ids, make_request
from tests.support.tenants.suite import (
    ADA,
    KEY_OF_OLGA,
    KEYS,
    SLOW,
    TenantSuite,
    fresh,
    is_public,
    path,
    serving_tenants,
)

EVENTS = {name: event for name, rpc in RPCS.items() if (event := rpc.GetOptions().Extensions[common_pb2.audit])}

CHANGES_NOTHING = {"AgentService.ValidateAgent"}
"""RPCs that are posted only because of their size."""

ELSEWHERE = {
    "AgentService.PutAgent": "tests/memory/audit/test_audit.py",
    "AgentService.DeleteAgent": "tests/memory/audit/test_audit.py",
    "AuditService.ExportAudit": "tests/memory/audit/test_audit.py",
    "GateService.AnswerGate": "tests/memory/audit/test_audit.py",
    "GateService.ExportGates": "tests/memory/audit/test_audit.py",
    "GateService.GetGate": "tests/orchestrator/calls/test_answerers.py",
    "GateService.RevokeGrant": "tests/memory/storage/test_grants.py",
    "MemoryService.ForkChat": "tests/tenants/test_content_reads.py",
    "MemoryService.GetChat": "tests/memory/access/test_sharing.py",
    "ToolService.CompleteAuthorization": "tests/tools/mcp_client",
    "ToolService.RevokeAuthorization": "tests/tools/mcp_client",
}
"""The tests that cover RPCs needing more than ids."""


def test_every_administrative_or_secret_returning_rpc_has_an_audit_event() -> None:
    read = {route.grpc_path for route in load_routes() if route.verb in ("GET", "HEAD")}
    acting = {
        name
        for name, rpc in RPCS.items()
        if is_public(rpc)
        and (
            "secret" in rpc.output_type.fields_by_name
            or (find_scope(path(rpc)) in ("operate", "publish", "admin") and path(rpc) not in read)
        )
    }
    assert acting - set(EVENTS) == CHANGES_NOTHING


def test_each_audit_event_is_documented() -> None:
    documented = {*re.findall(r"`([a-z_]+\.[a-z_]+)`", Path("docs/security.md").read_text())}
    assert set(EVENTS.values()) - documented == set()


CALLED = [name for name in EVENTS if is_public(RPCS[name]) and name not in ELSEWHERE]


async def read_log(suite: TenantSuite) -> list[dict[str, Any]]:
    outcome = await suite.call(RPCS["AuditService.ExportAudit"], ADA, [audit_pb2.ExportAuditRequest()])
    return [json.loads(response.line) for response in outcome.reply]


async def test_each_audited_rpc_writes_a_line(tmp_path: Path) -> None:
    async with serving_tenants(tmp_path) as suite:
        chat_id, run_id = await suite.ask(ADA, SLOW)
        ids = Ids(chat_id, run_id, schedule=fresh(), webhook=fresh(), key=fresh())
        async with suite.connect(KEYS[ADA]) as ada:
            await ada.create_schedule("plain", "hi", cron="0 0 1 1 *", schedule_id=ids.schedule)
            hold_id = (await ada.place_hold(reason="test", user="eve")).hold_id
        async with suite.connect(KEY_OF_OLGA) as olga:
            others_id = (await olga.create_key("of Olga's", "cat")).key.key_id
        missing = dict[str, str]()
        for name in sorted(
            CALLED, key=lambda name_of_rpc: ("Delete" in name_of_rpc, "Erase" in name_of_rpc, "Release" in name_of_rpc)
        ):
            request = make_request(name, ids)
            match name:
                case "ScheduleService.CreateSchedule":
                    request[0].MergeFrom(type(request[0])(schedule_id=fresh()))
                case "KeyService.SuspendUser" | "KeyService.ReleaseUser":
                    request[0].MergeFrom(type(request[0])(user="nobody"))
                case "KeyService.ConfirmKey":
                    request[0].MergeFrom(type(request[0])(key_id=others_id))
                case "DataService.PlaceHold":
                    request[0].MergeFrom(type(request[0])(user="dan", reason="test"))
                case "DataService.ReleaseHold":
                    request[0].MergeFrom(type(request[0])(hold_id=hold_id))
                case "DataService.EraseData":
                    request[0].MergeFrom(type(request[0])(user="nobody", reason="test"))
                case _:
                    pass
            before = len(await read_log(suite))
            outcome = await suite.call(RPCS[name], ADA, request)
            assert outcome.code == "OK", (name, outcome)
            if EVENTS[name] not in [line["event"] for line in (await read_log(suite))[before:]]:
                missing[name] = EVENTS[name]
        log = await read_log(suite)
    assert missing == {}
    assert {(line["by"], line["credential"][:8]) for line in log} == {("ada", "api_key:"), ("olga", "api_key:")}
    assert "whsec_" not in json.dumps(log)
    assert "hrk_" not in json.dumps(log)
