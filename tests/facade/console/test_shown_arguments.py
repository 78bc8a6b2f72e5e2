"""People approve what will run: the console shows all arguments, unaltered, before it offers Approve."""

import asyncio
import hashlib
import json

import orjson
import pytest
from playwright.async_api import expect

from headrace.v1 import agent_pb2, gates_pb2
from tests.support.console.page import Opening
from tests.support.console.scripted import Orchestrator, Story, gate

pytestmark = pytest.mark.asyncio(loop_scope="session")

HIDING = {"iban": "DE\u202e98 76\u202c 54\u200b", "by": "אבג 12", "to": "a" + " " * 40 + "mallory"}
SHOWN = (
    '{\n  "iban": "DE\\u202e98 76\\u202c 54\\u200b",\n  "by": "\u2068אבג\u2069 12",\n'
    '  "to": "a' + "\\u0020" * 40 + 'mallory"\n}'
)


async def test_invisible_and_reordering_characters_are_shown_escaped(opening: Opening) -> None:
    ask = agent_pb2.ApprovalAsk(approval_id="ap_1", tool_id="c1", reason="pay 1\u202e2", risk="high", expires_at=1)
    story = Story().call("c1", "p\u200bay", json.dumps(HIDING, ensure_ascii=False)).add(approval_ask=ask)
    async with opening(story.wait(asyncio.Event())) as console:
        await console.ask()
        await expect(console.page.get_by_role("group", name="Arguments")).to_have_text(SHOWN)
        await expect(console.page.locator(".gist").first).to_contain_text("DE\\u202e98 76\\u202c")
        approval = console.page.get_by_role("region", name="Approval")
        await expect(approval).to_contain_text("May p\\u200bay run?")
        await expect(approval).to_contain_text("pay 1\\u202e2")
        await approval.get_by_role("button", name="Edit…").click()
        edited = await approval.get_by_label("Arguments to run with (JSON)").input_value()
        assert ("\u202e" in edited, json.loads(edited)) == (False, HIDING)


async def test_long_arguments_can_be_approved_only_after_expanding_them(opening: Opening) -> None:
    given = json.dumps({"a": "x" * 120_000, "to": "mallory", "b": "x" * 120_000})
    digest = hashlib.sha256(given.encode()).hexdigest()
    opened = agent_pb2.GateOpen(gate_id="ap_1", kind="approval", grounds=["the rule"], arguments_chars=len(given))
    story = Story().call("c1", "pay", given).add(gate_open=opened).ask_approval().wait(asyncio.Event())
    waiting = gate("ap_1", arguments=given, arguments_sha256=digest)
    async with opening(script=Orchestrator(query=story.steps, gates=[waiting])) as console:
        await console.ask()
        await expect(console.page.get_by_role("group", name="Arguments")).to_contain_text("characters before this are")
        approval = console.page.get_by_role("region", name="Approval")
        deciding = ("Approve", "Approve for this run", "Approve for this chat (8 h)")
        for name in deciding:
            await expect(approval.get_by_role("button", name=name, exact=True)).to_be_disabled()
        await approval.get_by_role("button", name="Show all").click()
        await expect(approval.get_by_role("group", name="All arguments")).to_contain_text("mallory")
        for name in deciding:
            await expect(approval.get_by_role("button", name=name, exact=True)).to_be_enabled()
        await approval.get_by_role("button", name="For this chat (8 h)").click()
        await expect(approval).to_contain_text("Sent.")
        request = await console.suite.script.first(agent_pb2.SubmitRequest)
    assert orjson.loads(request.payload) == {"decision": "approve", "grant": "chat", "argumentsSha256": digest}


async def test_the_inbox_shows_all_of_a_calls_arguments(opening: Opening) -> None:
    given = json.dumps({"a": "x" * 120_000, "to": "mal\u202elory"}, ensure_ascii=False)
    script = Orchestrator(gates=[gate("ap_1", arguments=given, arguments_sha256="0" * 64, reason="1\u202e2")])
    async with opening(script=script, place="#page=inbox") as console:
        await console.page.get_by_role("list", name="Gates").get_by_role("link").click()
        shown_arguments = await console.page.get_by_role("group", name="Arguments of the call").inner_text()
        assert shown_arguments == '{\n  "a": "' + "x" * 120_000 + '",\n  "to": "mal\\u202elory"\n}'
        await expect(console.page.get_by_role("region", name="Approval")).to_contain_text("1\\u202e2")
        await console.page.get_by_role("button", name="Approve", exact=True).click()
        request = await script.first(gates_pb2.AnswerGateRequest)
    assert orjson.loads(request.payload) == {"decision": "approve", "argumentsSha256": "0" * 64}
