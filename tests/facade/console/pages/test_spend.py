"""The spend page: cost by day and model as bars and sums, and who may see the tenant's."""

from datetime import timedelta

import pytest
from playwright.async_api import expect

from headrace.v1 import spend_pb2
from services.runtime.clock import now_utc
from tests.support.console.page import Opening
from tests.support.console.scripted import Memory, Spend

pytestmark = pytest.mark.asyncio(loop_scope="session")


def day(ago: int) -> str:
    return (now_utc().date() - timedelta(days=ago)).isoformat()


def row(ago: int, model: str, nano_usd: int, tokens: int = 10) -> spend_pb2.UsageRow:
    return spend_pb2.UsageRow(day=day(ago), model=model, cost_nano_usd=nano_usd, input_tokens=tokens, model_calls=1)


async def test_daily_bars_are_stacked_by_model_and_totalled(opening: Opening) -> None:
    rows = row(2, "p/<b>dear</b>", 3_000_000_000), row(2, "p/cheap", 500_000_000), row(1, "p/cheap", 250_000_000)
    # axe is injected, which the page's own policy would rightly refuse.
    async with opening(memory=Memory(spend=Spend(*rows)), bypass_csp=True) as console:
        await console.go("Spend")
        main = console.page.get_by_role("main")
        sums = main.get_by_role("region", name="Sums")
        await expect(sums.locator("tbody th")).to_have_text(["p/<b>dear</b>", "p/cheap", "All"])
        await expect(sums.locator("tbody td:nth-child(2)")).to_have_text(["$3.00", "$0.7500", "$3.75"])
        await expect(main.locator("figcaption")).to_contain_text(f"Cost by day, {day(29)} to {day(0)} (UTC)")
        over = main.get_by_role("img", name="Cost by day").locator(".u-over")
        width = await over.evaluate("(element) => element.clientWidth")
        # Bars are at the numbers from 0 to 29, with 0.6 before the first and after the last.
        await over.hover(position={"x": width * 27.6 / 30.2, "y": 100})
        tip = main.locator(".tip")
        await expect(tip).to_have_text(f"{day(2)} $3.50p/<b>dear</b> $3.00p/cheap $0.5000")
        await main.get_by_text("Show days as a table").click()
        table = main.get_by_role("region", name="Cost by day").locator("tr")
        await expect(table).to_have_text(["Dayp/<b>dear</b>p/cheap", f"{day(2)}$3.00$0.5000", f"{day(1)}$0.00$0.2500"])
        await console.check_accessibility()
        await main.get_by_role("combobox", name="In").select_option("7")
        await main.get_by_role("combobox", name="By").select_option("agent")
        await expect(main.locator("figcaption")).to_contain_text(day(6))
        requests = console.suite.memory.spend.requests
        assert [list(request.group_by) for request in requests] == [["day", "model"]] * 2 + [["day", "agent"]]
        assert [request.from_day for request in requests] == [day(29), day(6), day(6)]
        await console.page.reload()
        await expect(main.get_by_role("combobox", name="By")).to_have_value("agent")
        await expect(main.locator("figcaption")).to_contain_text(day(6))


@pytest.mark.nightly
async def test_tokens_are_shown_without_prices_and_the_tenants_spend_may_be_refused(opening: Opening) -> None:
    async with opening(memory=Memory(spend=Spend(row(0, "p/free", 0, 1200)))) as console:
        await console.go("Spend")
        main = console.page.get_by_role("main")
        await expect(main.locator("figcaption")).to_contain_text("total 1,200 tokens")
        await main.get_by_role("combobox", name="Of").select_option("tenant")
        await expect(main.get_by_role("alert")).to_contain_text("no scope 'operate'")
        await expect(main.get_by_role("img")).to_have_count(0)
