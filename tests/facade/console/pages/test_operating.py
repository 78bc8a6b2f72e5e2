"""The pages Live and Providers: a tenant's runs, stopped singly or together, and the health of providers."""

import re

import pytest
from playwright.async_api import expect

from headrace.v1 import llm_pb2, operator_pb2
from services.runtime.clock import now_ms
from tests.support.console.page import Opening
from tests.support.console.scripted import Operator, Orchestrator
from tests.support.facade.scripted import CHAT

pytestmark = pytest.mark.asyncio(loop_scope="session")


def run_id(number: int) -> str:
    return f"11111111-1111-4111-8111-{number:012}"


def make_run(number: int, user: str, state: str, *, reason: str = "") -> operator_pb2.OperatorRun:
    return operator_pb2.OperatorRun(
        run_id=run_id(number),
        chat_id=CHAT,
        user=user,
        agent_key="helper",
        state=state,
        reason=reason,
        began_at=now_ms() - 7 * 60_000,
        model_calls=3,
        input_tokens=1200,
        output_tokens=34,
        cost_nano_usd=1_500_000,
        owner="10.0.0.7:7001",
    )


def make_operator() -> Operator:
    """Return an operator service with runs of three users, a healthy and a failing provider, and two replicas."""
    fine = llm_pb2.ModelHealth(model="m-1", breaker="closed", attempts=1200, error_ratio=0.015, first_delta_ms=420)
    fine.first_delta_ms_p95 = 1900
    down = llm_pb2.ModelHealth(model="m-2", breaker="open", blocked_ms=5000, attempts=4, error_ratio=1)
    return Operator(
        runs=[
            make_run(1, "default", "running"),
            make_run(2, "ada", "waiting"),
            make_run(3, "bob", "running"),
            make_run(4, "ada", "failed", reason="PROVIDER_UNAVAILABLE"),
        ],
        providers=[
            llm_pb2.ProviderHealth(
                provider_key="good",
                models=[fine],
                running=3,
                waiting=2,
                concurrency=4,
                minute_requests=17,
                requests_per_minute=60,
                replicas=1,
            ),
            llm_pb2.ProviderHealth(provider_key="bad", models=[down], replicas=1),
        ],
        replicas=[
            operator_pb2.Replica(address="10.0.0.7:7001", runs=3, is_alive=True, is_this=True),
            operator_pb2.Replica(address="10.0.0.8:7001", runs=1),
        ],
    )


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.nightly)])
async def test_live_runs_are_listed_and_stopped(opening: Opening, scheme: str) -> None:
    script = Orchestrator(operator=make_operator())
    async with opening(script=script, place="#page=live", color_scheme=scheme, bypass_csp=True) as console:
        page, operator = console.page, script.operator
        rows = page.get_by_role("region", name="Runs").locator("tbody tr")
        await expect(rows).to_have_count(3)
        await expect(rows.nth(1)).to_have_text(
            re.compile(r"helperada\s*waiting\s*\d+ minutes ago\s*3\s*1,234\s*\$0.0015\s*10.0.0.7:7001")
        )
        await page.get_by_role("button", name="helper ada").click()
        await expect(rows.get_by_role("link", name="Open the chat")).to_have_count(0)
        await page.get_by_role("button", name="helper ada").click()
        await page.get_by_role("button", name="helper default").click()
        link = rows.get_by_role("link", name="Open the chat")
        await expect(link).to_have_attribute("href", f"#chat={CHAT}")
        await page.get_by_role("button", name="helper default").click()
        await expect(rows).to_have_count(3)
        await console.check_accessibility()
        await expect(page.get_by_role("button", name="Stop selected")).to_be_disabled()
        await rows.nth(1).get_by_role("checkbox").check()
        await rows.nth(2).get_by_role("checkbox").check()
        await console.confirm("Stop selected (2)", "Cancel")
        assert operator.cancelled == []
        await page.get_by_role("button", name="Stop selected (2)").click()
        await expect(page.get_by_role("dialog")).to_contain_text("Stop 2 runs?")
        await page.get_by_role("dialog").get_by_role("button", name="Stop").click()
        await expect(page.get_by_text("2 runs stopping")).to_be_visible()
        await expect(rows).to_have_count(1)
        assert operator.cancelled == [run_id(2), run_id(3)]
        await console.confirm("Stop: helper, default", "Stop")
        await expect(page.get_by_text("No runs match.")).to_be_visible()


@pytest.mark.nightly
async def test_the_selection_survives_list_updates(opening: Opening) -> None:
    script = Orchestrator(operator=make_operator())
    async with opening(script=script, place="#page=live") as console:
        page, operator = console.page, script.operator
        box = page.get_by_role("checkbox", name="Select helper, bob")
        await box.check()
        operator.runs.insert(0, make_run(9, "eve", "running"))
        await expect(page.get_by_role("checkbox", name="Select helper, eve")).to_be_visible()
        await expect(box).to_be_checked()
        await expect(box).to_be_focused()
        operator.runs = [run for run in operator.runs if run.user != "bob"]
        await expect(box).to_have_count(0)
        await expect(page.get_by_role("button", name="Stop selected")).to_be_disabled()


@pytest.mark.nightly
async def test_runs_are_filtered_and_the_filters_are_kept_in_the_url(opening: Opening) -> None:
    script = Orchestrator(operator=make_operator())
    async with opening(script=script, place="#page=live&state=failed&user=ada") as console:
        page, rows = console.page, console.page.get_by_role("region", name="Runs").locator("tbody tr")
        await expect(rows).to_have_text([re.compile("failed.*PROVIDER_UNAVAILABLE")])
        await expect(rows.get_by_role("checkbox")).to_be_disabled()
        await page.get_by_role("combobox", name="State").select_option("all")
        await expect(rows).to_have_count(2)
        async with page.expect_response(lambda response: "olderThanMs" in response.url):
            await page.get_by_role("combobox", name="Began over").select_option("an hour ago")
        await expect(page).to_have_url(re.compile("#page=live&state=all&user=ada&olderThanMs=3600000$"))
        last = script.operator.requests[-1]
        assert (last.state, last.user, last.older_than_ms) == ("", "ada", 3_600_000)


@pytest.mark.nightly
async def test_providers_and_replicas_are_shown(opening: Opening) -> None:
    script = Orchestrator(operator=make_operator())
    async with opening(script=script, place="#page=providers", bypass_csp=True) as console:
        page = console.page
        models = page.get_by_role("region", name="Models").locator("tbody tr")
        await expect(models).to_have_text(
            ["m-1goodclosed1,2001.5%420 ms95 %: 1.9 s3 of 4217 of 600", "m-2badopenfor 5.0 s4100%–0000"]
        )
        replicas = page.get_by_role("region", name="Replicas").locator("tbody tr")
        await expect(replicas).to_have_text(["10.0.0.7:7001 (this one)alive3", "10.0.0.8:7001its leases have expired1"])
        limits = page.get_by_role("region", name="Limits").locator("tbody tr")
        await expect(limits).to_have_text(
            [
                re.compile(r"budget moneydailyfulluntil .*\$2.50 of \$2.50userbudgets.yamldaily"),
                "tenant runsfree3 chats of 20 chatstenantsettingsHEADRACE_ORCHESTRATOR_TENANT_RUNS_MAX",
                "message bytesfree– of 4 MiBcallfixed",
                "model breakerprov/idlehalf-open– of –tenantfixed",
            ]
        )
        await expect(page.get_by_text("No answer from: tools.")).to_be_visible()
        await console.check_accessibility()


@pytest.mark.nightly
async def test_the_live_and_providers_pages_require_the_operate_scope(opening: Opening) -> None:
    async with opening(
        script=Orchestrator(scopes=("ask", "admin"), operator=Operator(is_refused=True)), place="#page=live"
    ) as console:
        links = console.page.get_by_role("navigation", name="Pages").get_by_role("link")
        await expect(links).to_have_text(
            ["Chats", "Inbox", "Agents", "Schedules", "Spend", "Recordings", "Webhooks", "Keys", "Data", "Audit"]
        )
        await expect(console.page.get_by_role("alert")).to_contain_text("no scope 'operate'")
