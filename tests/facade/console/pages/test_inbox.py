"""The inbox lists, filters, shows and answers the gates that wait for a person."""

import json
import re
from typing import Any

import pytest
from playwright.async_api import Page, expect

from headrace.errors import PermissionDenied
from headrace.v1 import agent_pb2, common_pb2, gates_pb2
from services.runtime.clock import now_ms
from tests.support.console.page import Opening
from tests.support.console.scripted import Orchestrator, gate, make_gates
from tests.support.facade.authorizations import make_authorization
from tests.support.facade.scripted import CHAT, RUN

pytestmark = pytest.mark.asyncio(loop_scope="session")

NOTIFICATIONS = """
    window.notified = [];
    window.Notification = class {
        static permission = "default";
        static async requestPermission() { return (this.permission = "granted"); }
        constructor(title, { body, tag }) { notified.push({ title, body, tag, open: () => this.onclick() }); }
        close() {}
    };
    document.hasFocus = () => false;
"""
"""A browser that allows notifications when asked, and whose window is behind another one."""


def make_address(gate_id: str) -> str:
    return f"#page=inbox&run={RUN}&gate={gate_id}"


def list_answers(script: Orchestrator) -> list[tuple[str, Any]]:
    return [
        (request.gate_id, json.loads(request.payload))
        for request in script.requests
        if isinstance(request, gates_pb2.AnswerGateRequest)
    ]


def find_links(page: Page) -> Any:
    return page.get_by_role("list", name="Gates").get_by_role("link")


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.nightly)])
async def test_open_gates_are_listed_and_approved(opening: Opening, scheme: str) -> None:
    script = Orchestrator(gates=make_gates())
    async with opening(script=script, place="#page=inbox", color_scheme=scheme, bypass_csp=True) as console:
        page, links = console.page, find_links(console.page)
        await expect(links).to_have_count(4)
        await expect(page).to_have_title("(4) Inbox – Headrace")
        await expect(links.nth(1)).to_have_text(
            re.compile("Approval: wipe.*low risk.*writer · ada · waiting 7 minutes")
        )
        await links.first.click()
        selected = page.get_by_role("region", name="Selected gate")
        await expect(selected.get_by_role("heading", name="Approval: pay")).to_be_focused()
        await expect(selected.locator("pre")).to_contain_text('"to": "<b>Bob</b>",\n  "amount": 12345678901234567890')
        await expect(selected.get_by_role("link", name="Open")).to_have_attribute("href", f"#chat={CHAT}")
        await console.check_accessibility()
        await selected.get_by_label("Note for the model").fill("go on")
        await selected.get_by_role("button", name="Approve").click()
        await expect(selected).to_contain_text("Approved by default (identity unproven)")
        await expect(selected.locator(".outcome")).to_contain_text(re.compile("Approved by .*: go on"))
        await expect(links).to_have_count(3)
        await expect(page).to_have_title("(3) Inbox – Headrace")
        assert list_answers(script) == [("approval_1", {"decision": "approve", "note": "go on"})]


@pytest.mark.nightly
async def test_arguments_are_edited_and_calls_rejected(opening: Opening) -> None:
    script = Orchestrator(gates=make_gates())
    async with opening(script=script, place=make_address("approval_1")) as console:
        page = console.page
        await page.get_by_role("button", name="Edit…").click()
        await page.get_by_label("Arguments to run with").fill('{"to": "Eve"}')
        await page.get_by_role("button", name="Approve as edited").click()
        await expect(page.get_by_role("main")).to_contain_text("Approved with other arguments by default")
        await expect(page.get_by_role("group", name="Answer")).to_have_text('{\n  "to": "Eve"\n}')
        await find_links(page).first.click()
        await expect(page.get_by_role("heading", name="Approval: wipe")).to_be_visible()
        await expect(page.get_by_text("Can be answered by role:boss, except the requester")).to_be_visible()
        await expect(page.get_by_role("link", name="Open")).to_have_count(0)
        script.refused_gate = PermissionDenied("who has asked may not answer")
        await page.get_by_role("button", name="Reject").click()
        await expect(page.get_by_text("who has asked may not answer")).to_be_visible()
        script.refused_gate = None
        await page.get_by_role("button", name="Reject").click()
        await expect(page.get_by_role("main")).to_contain_text("Rejected by default")
        assert list_answers(script) == [
            ("approval_1", {"decision": "edit", "arguments": {"to": "Eve"}}),
            ("approval_2", {"decision": "reject"}),
        ]


@pytest.mark.nightly
async def test_arguments_edited_by_a_vote_are_shown_and_approved(opening: Opening) -> None:
    votes = [
        agent_pb2.GateStep(gate_id="approval_1", step="vote", by="ada", decision="edit", arguments='{"to": "Eve"}'),
        agent_pb2.GateStep(gate_id="approval_1", step="vote", by="bob", decision="approve"),
    ]
    script = Orchestrator(gates=[gate("approval_1", arguments='{"to": "Eve"}', steps=votes)])
    async with opening(script=script, place=make_address("approval_1")) as console:
        approval = console.page.get_by_role("region", name="Approval")
        await expect(approval.locator("pre")).to_have_text('{\n  "to": "Eve"\n}')
        await approval.get_by_role("button", name="Approve", exact=True).click()
        await expect(console.page.get_by_role("main")).to_contain_text("Approved with other arguments by default")
        assert list_answers(script) == [("approval_1", {"decision": "edit", "arguments": {"to": "Eve"}})]


async def test_questions_and_forms_are_answered_by_their_views(opening: Opening) -> None:
    script = Orchestrator(gates=make_gates())
    async with opening(script=script, place=make_address("q_1")) as console:
        page = console.page
        await page.get_by_role("button", name="blue").click()
        await expect(page.get_by_label("Which <i>one</i>?")).to_have_value("blue")
        await page.get_by_role("button", name="Submit").click()
        await expect(page.get_by_role("main")).to_contain_text("Answered by default")
        await expect(page.get_by_role("group", name="Answer")).to_contain_text("blue")
        await find_links(page).filter(has_text="order").click()
        await page.get_by_label("count").fill("2")
        await page.get_by_role("button", name="Submit").click()  # which lacks a required field
        await page.get_by_label("size").select_option("large")
        await page.get_by_label("gift").check()
        await page.get_by_role("button", name="Submit").click()
        await expect(page.get_by_role("main")).to_contain_text("Answered by default")
        await expect(page.get_by_role("group", name="Answer")).to_contain_text('"size": "large"')
        form = {"size": "large", "count": 2, "gift": True}
        assert list_answers(script) == [("q_1", {"answer": "blue"}), ("f_1", form)]


async def test_a_credential_is_supplied_in_a_password_field(opening: Opening) -> None:
    need = common_pb2.CredentialNeed(
        name="github", description="A token.", obtain="https://github.com/t", problem="missing"
    )
    gates = [
        gate(f"credential_{n}", kind="credential", tool_name="issues", risk=None, reason="github is missing", need=need)
        for n in (1, 2)
    ]
    script = Orchestrator(gates=gates)
    async with opening(script=script, place=make_address("credential_1"), bypass_csp=True) as console:
        page = console.page
        field = page.get_by_label("Credential github")
        await expect(field).to_have_attribute("type", "password")
        await expect(page.get_by_role("link", name="https://github.com/t")).to_have_attribute(
            "rel", "noopener noreferrer"
        )
        await console.check_accessibility()
        await field.fill(" hunter2-of-ada ")
        await page.get_by_role("button", name="Submit").click()
        await expect(page.get_by_role("main")).to_contain_text("Supplied by default")
        await find_links(page).click()
        await page.get_by_role("button", name="Continue without it").click()
        await expect(page.get_by_role("main")).to_contain_text("Rejected by default")
        supplied = {"decision": "supply", "secret": "hunter2-of-ada"}
        assert list_answers(script) == [("credential_1", supplied), ("credential_2", {"decision": "reject"})]


@pytest.mark.nightly
async def test_an_elicitation_is_shown_as_a_form_or_a_link(opening: Opening) -> None:
    schema = '{"type": "object", "properties": {"seats": {"type": "integer"}}, "required": ["seats"]}'
    asks = [
        common_pb2.InputNeed(name="1", server="tables", message="How many?", schema=schema),
        common_pb2.InputNeed(name="2", server="tables", message="Pay", url="https://pay.example/7"),
        common_pb2.InputNeed(name="3", server="tables", message="Now?", url="https://pay.example/8"),
    ]
    gates = [
        gate(f"input_{ask.name}", kind="form", tool_name="book", risk=None, reason=ask.message, ask=ask) for ask in asks
    ]
    script = Orchestrator(gates=gates)
    async with opening(script=script, place=make_address("input_1"), bypass_csp=True) as console:
        page, main = console.page, console.page.get_by_role("main")
        await expect(main).to_contain_text("The server tables asks: How many?")
        await console.check_accessibility()
        await page.get_by_label("seats").fill("4")
        await page.get_by_role("button", name="Submit").click()
        await expect(main).to_contain_text("Answered by default")
        await find_links(page).first.click()
        link = page.get_by_role("link", name="https://pay.example/7")
        await expect(link).to_have_attribute("rel", "noopener noreferrer")
        await page.get_by_role("button", name="Done").click()
        await expect(main).to_contain_text("Answered by default")
        await find_links(page).first.click()
        await page.get_by_role("button", name="Decline").click()
        await expect(main).to_contain_text("Answered by default")
        expected = [("input_1", {"seats": 4}), ("input_2", {"done": True}), ("input_3", {"cancelled": True})]
        assert list_answers(script) == expected


@pytest.mark.nightly
async def test_filters_are_kept_in_the_url(opening: Opening) -> None:
    script = Orchestrator(gates=make_gates())
    async with opening(script=script, place="#page=inbox") as console:
        page, links = console.page, find_links(console.page)
        await page.get_by_role("combobox", name="Kind").select_option("approval")
        await expect(links).to_have_count(2)
        await page.get_by_role("combobox", name="Agent").select_option("writer")
        await expect(links).to_have_text([re.compile("Approval: wipe")])
        await expect(page).to_have_url(re.compile("#page=inbox&kind=approval&agent=writer$"))
        await page.get_by_role("combobox", name="Risk").select_option("high")
        await expect(page.get_by_role("status").filter(has_text="Nothing is waiting for an answer.")).to_be_visible()
        await page.get_by_role("combobox", name="Risk").select_option("low")
        await expect(links).to_have_count(1)
        await page.reload()
        await expect(links).to_have_count(1)
        await expect(page.get_by_role("combobox", name="Agent")).to_have_value("writer")
        await page.get_by_role("combobox", name="Which").select_option("own")
        await expect(links).to_have_count(0)
        assert get_last_watch(script) == ("own", "approval", "writer", "low")
        await page.get_by_role("combobox", name="Which").select_option("")
        await expect(links).to_have_count(1)
        await page.get_by_role("combobox", name="Waiting").select_option("5")
        await expect(page).to_have_url(re.compile("older=5$"))
        await expect(links).to_have_count(1)
        await page.get_by_role("combobox", name="Waiting").select_option("60")
        await expect(links).to_have_count(0)


def get_last_watch(script: Orchestrator) -> tuple[Any, ...]:
    last = [request for request in script.requests if isinstance(request, gates_pb2.WatchGatesRequest)][-1]
    return last.scope, last.kind, last.agent_key, last.risk


@pytest.mark.nightly
async def test_keys_move_through_the_list(opening: Opening) -> None:
    script = Orchestrator(gates=make_gates())
    async with opening(script=script, place="#page=inbox") as console:
        page, links = console.page, find_links(console.page)
        await expect(links).to_have_count(4)
        for key, index in (("j", 0), ("ArrowDown", 1), ("j", 2), ("k", 1), ("ArrowUp", 0), ("k", 0)):
            await page.keyboard.press(key)
            await expect(links.nth(index)).to_be_focused()
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="Approval: wipe")).to_be_focused()
        await expect(links.nth(1)).to_have_attribute("aria-current", "true")
        await page.get_by_label("Note for the model").focus()
        await page.keyboard.type("jk")
        await expect(page.get_by_label("Note for the model")).to_have_value("jk")
        await page.get_by_role("button", name="Reject").focus()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("heading", name="Approval: wipe")).to_have_count(0)
        await expect(links.nth(1)).to_be_focused()


@pytest.mark.nightly
async def test_an_answer_by_somebody_else_appears_in_the_open_gate(opening: Opening) -> None:
    script = Orchestrator(gates=make_gates())
    async with opening(script=script, place=make_address("approval_1")) as console:
        page = console.page
        await expect(page.get_by_role("button", name="Approve")).to_be_visible()
        await expect(find_links(page)).to_have_count(4)
        await page.get_by_label("Note for the model").fill("half a no")
        script.gates.append(gate("approval_3", tool_name="later"))
        await expect(find_links(page)).to_have_count(5)
        await expect(page.get_by_label("Note for the model")).to_have_value("half a no")
        first = script.find_gate("approval_1")
        first.state, first.answered_by, first.credential = "answered", "bob", "api_key:1234"
        first.answer = '{"decision": "reject", "note": "half a no"}'
        await expect(page.get_by_role("main")).to_contain_text("Rejected by bob: half a no")
        await expect(page.get_by_role("button", name="Approve")).to_have_count(0)


@pytest.mark.nightly
async def test_a_missing_gate_shows_an_error(opening: Opening) -> None:
    async with opening(place=make_address("approval_9")) as console:
        await expect(console.page.get_by_role("alert")).to_have_text("there is no gate 'approval_9'")


@pytest.mark.nightly
async def test_waiting_chats_are_marked_and_counted_in_the_title(opening: Opening) -> None:
    script = Orchestrator(gates=make_gates())
    async with opening(script=script) as console:
        mark = console.page.locator("#chats li").get_by_text("waits for an answer")
        await expect(mark).to_be_visible()
        await expect(console.page).to_have_title("(4) Headrace")
        await expect(console.page.get_by_role("link", name="Inbox 4")).to_be_visible()
        for open_gate in script.gates:
            open_gate.state = "answered"
        await console.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        await expect(console.page).to_have_title("Headrace")
        await expect(mark).to_be_hidden()


@pytest.mark.nightly
async def test_a_user_who_allows_notifications_is_notified_of_new_gates(opening: Opening) -> None:
    script = Orchestrator(gates=make_gates()[:1])
    async with opening(script=script) as console:
        page = console.page
        await page.add_init_script(NOTIFICATIONS)
        await page.reload()
        await page.get_by_role("link", name="Inbox").click()
        await expect(find_links(page)).to_have_count(1)
        assert await page.evaluate("Notification.permission") == "default", "nobody asks without a click"
        await page.get_by_role("button", name="Notify me").click()
        await expect(page.get_by_text("Notifications are on")).to_be_visible()
        await page.get_by_role("link", name="Chats").click()
        script.gates.append(gate("approval_3", tool_name="later"))
        await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        await expect(page).to_have_title("(2) Headrace")
        (notified,) = await page.evaluate("notified.map(({ title, body }) => ({ title, body }))")
        assert notified == {"title": "Approval: later", "body": "helper · high risk"}
        await page.evaluate("notified[0].open()")
        await expect(page.get_by_role("heading", name="Approval: later")).to_be_visible()


@pytest.mark.nightly
async def test_on_a_phone_the_list_and_the_gate_alternate(opening: Opening) -> None:
    script = Orchestrator(gates=make_gates())
    async with opening(script=script, place="#page=inbox", viewport={"width": 390, "height": 844}) as console:
        page = console.page
        await find_links(page).first.click()
        await expect(page.get_by_role("button", name="Approve")).to_be_visible()
        await expect(find_links(page)).to_have_count(0)
        assert not await page.evaluate("document.documentElement.scrollWidth > innerWidth")
        await page.get_by_role("button", name="Back to the list").click()
        await expect(find_links(page)).to_have_count(4)
        await expect(find_links(page).first).to_be_focused()


@pytest.mark.nightly
async def test_an_approval_creates_a_grant_and_grants_are_listed_and_revoked(opening: Opening) -> None:
    lasting: dict[str, Any] = {"expires_at": now_ms() + 3_600_000}
    grant: dict[str, Any] = {"chat_id": CHAT, "tool_name": "pay", "grounds": ["the <i>tool's</i> definition"]}
    grants = [
        gates_pb2.Grant(grant_id="g_1", scope="chat", made_by=["bob", "ada"], requester="ada", **grant, **lasting),
        gates_pb2.Grant(grant_id="g_2", scope="run", made_by=["bob"], requester="bob", **grant),
    ]
    script = Orchestrator(gates=[gate("approval_1", is_grantable=True), gate("approval_2")], grants=grants)
    async with opening(script=script, place=make_address("approval_1"), bypass_csp=True) as console:
        page = console.page
        selected, ahead = (page.get_by_role("region", name=name) for name in ("Selected gate", "Approved in advance"))
        await expect(ahead.locator("tbody tr")).to_have_count(2)
        await expect(ahead.locator("tbody tr").last).to_contain_text("pay, for a run of bob")
        await expect(ahead.locator("tbody tr").first).to_contain_text("the <i>tool's</i> definition · by bob, ada")
        await console.check_accessibility()
        await ahead.get_by_role("button", name="Revoke: pay").first.click()
        await expect(ahead.locator("tbody tr")).to_have_count(1)
        await expect(page.get_by_role("heading", name="Inbox")).to_be_focused()
        await selected.get_by_role("button", name="For this chat").click()
        await expect(selected).to_contain_text("Approved by default")
        await find_links(page).first.click()
        await expect(selected.get_by_role("button", name="Approve")).to_be_visible()
        await expect(selected.get_by_role("button", name="For this run")).to_have_count(0)
    assert list_answers(script) == [("approval_1", {"decision": "approve", "grant": "chat"})]
    [revoked] = [request for request in script.requests if isinstance(request, gates_pb2.RevokeGrantRequest)]
    assert (revoked.chat_id, revoked.grant_id) == (CHAT, "g_1")


@pytest.mark.nightly
async def test_authorized_servers_are_listed_and_revoked(opening: Opening) -> None:
    async with opening(bypass_csp=True) as console:
        page, tools = console.page, console.suite.tools
        tools.authorizations = [make_authorization("mail"), make_authorization("<i>notes</i>", in_use=False)]
        await page.goto(f"{console.suite.url}/#page=inbox")
        servers = page.get_by_role("region", name="Authorized servers")
        await expect(servers.locator("tbody tr")).to_have_count(2)
        await expect(servers.locator("tbody tr").first).to_contain_text("by https://login.example/ · since")
        await expect(servers.locator("tbody tr").last).to_contain_text("<i>notes</i> (not in use)")
        await console.check_accessibility()
        await servers.get_by_role("button", name="Revoke: mail").click()
        await expect(servers.locator("tbody tr")).to_have_count(1)
        await expect(page.get_by_role("heading", name="Inbox")).to_be_focused()
        assert [authorization.server for authorization in tools.authorizations] == ["<i>notes</i>"]
        tools.authorizations = []
        await servers.get_by_role("button", name="Revoke").click()
        await expect(page.get_by_role("alert")).to_contain_text("have not authorized")
