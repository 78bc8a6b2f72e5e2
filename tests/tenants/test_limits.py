"""The limits in force: which limits each service applies to a user, their source, and how much the tenant has used."""

import asyncio
import contextlib
import json
from pathlib import Path

import pytest

from headrace.client import Client
from headrace.errors import NotFound, PermissionDenied
from headrace.v1 import limits_pb2
from services.orchestrator.lifecycle.admission.admission import WAITING_MAX
from tests.support.tenants.suite import ADA, BOB, KEYS, SLOW, serving_tenants

BUDGET = {"id": "daily", "period": "day", "usd": 2.5, "user": "*"}

Limits = dict[tuple[str, str], limits_pb2.Limit]


async def read_limits(client: Client, *whose: str, **more: str) -> Limits:
    found = await client.limits(*whose, **more)
    assert found.missing == ["llm_gateway"], "the scripted gateway lists no limits"
    return {(limit.name, limit.subject): limit for limit in found.limits}


async def read_limits_of_new_key(client: Client, credential: str) -> Limits:
    """Read the limits of a new key, which services know only after a moment."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(NotFound):
                return await read_limits(client, "robot", key=credential)
            await asyncio.sleep(0.02)


async def test_every_service_reports_its_limits_and_their_use(tmp_path: Path) -> None:
    (tmp_path / "budgets.yaml").write_text(json.dumps({"budgets": [BUDGET]}))
    async with (
        serving_tenants(tmp_path, runs_max=40, tenant_runs_max=7) as suite,
        suite.connect(KEYS[ADA]) as ada,
        suite.connect(KEYS[BOB]) as bob,
    ):
        key = await suite.make_key("ci", "robot", scopes=["ask", "operate"], runs_max=3, requests_per_minute=2)
        await ada.create_schedule("plain", "hello", cron="0 9 * * *")
        await ada.create_webhook("https://example.com/hook")
        await suite.ask(ADA, SLOW)
        limits, bobs_limits = await read_limits(ada), await read_limits(bob)
        of_key = await read_limits_of_new_key(ada, key.key.credential)
        with pytest.raises(NotFound, match=r"api_key:"):
            await bob.limits(key=key.key.credential)
    used = {name: limits[name, ""].used for name in ("runs", "tenant_runs", "tenant_queries", "webhooks", "schedules")}
    assert used == {"runs": 1, "tenant_runs": 1, "tenant_queries": 0, "webhooks": 1, "schedules": 1}
    assert {name: bobs_limits[name, ""].used for name in used} == dict.fromkeys(used, 0)
    sources = {name: (limits[name, ""].value, limits[name, ""].source, limits[name, ""].source_name) for name in used}
    assert sources["runs"] == (40, "settings", "HEADRACE_ORCHESTRATOR_RUNS_MAX")
    assert sources["tenant_runs"] == (7, "settings", "HEADRACE_ORCHESTRATOR_TENANT_RUNS_MAX")
    assert sources["tenant_queries"] == (1000, "default", "HEADRACE_ORCHESTRATOR_TENANT_WAITING_MAX")
    assert sources["webhooks"] == (20, "fixed", "")
    assert (limits["chat_queries", ""].value, limits["gates", ""].used) == (WAITING_MAX, 0)
    assert (limits["commands", ""].service, limits["commands", ""].used) == ("tools", 0)
    assert limits["upload_bytes", "pdf"].value == 50 * 1024 * 1024
    budget = limits["budget_money", "daily/user=ada"]
    assert (budget.value, budget.per, budget.source_name, budget.is_full) == (2_500_000_000, "user", "daily", False)
    assert budget.opens_at > 0
    assert ("key_runs", "") not in limits
    assert (of_key["key_runs", ""].value, of_key["key_requests", ""].value) == (3, 2)
    assert (of_key["schedules", ""].used, of_key["budget_money", "daily/user=robot"].used) == (0, 0)


async def test_a_used_up_limit_is_reported_with_the_time_it_opens(tmp_path: Path) -> None:
    (tmp_path / "budgets.yaml").write_text(json.dumps({"budgets": [BUDGET | {"usd": 0}]}))
    async with serving_tenants(tmp_path, tenant_runs_max=1) as suite, suite.connect(KEYS[ADA]) as ada:
        key = await suite.make_key("ci", "ada", scopes=["operate"], requests_per_minute=1)
        async with suite.connect(key.secret) as robot:
            while True:  # Until the orchestrator knows the key; this is the key's one call of the minute.
                try:
                    await read_limits(robot)
                    break
                except Exception:
                    await asyncio.sleep(0.05)
        full = {
            name: limit for name, limit in (await read_limits(ada, key=key.key.credential)).items() if limit.is_full
        }
        assert full.keys() == {("budget_money", "daily/user=ada"), ("key_requests", "")}
        assert all(limit.opens_at > 0 for limit in full.values())


async def test_limits_need_the_scope_operate_and_report_an_invalid_budgets_file(tmp_path: Path) -> None:
    (tmp_path / "budgets.yaml").write_text("budgets: [{id: x}]")
    async with serving_tenants(tmp_path) as suite, suite.connect(KEYS[ADA]) as ada:
        assert (await ada.limits()).missing == ["llm_gateway", "budgets"]
        key = await suite.make_key("own", "cat")
        async with suite.connect(key.secret) as cat:
            with pytest.raises(PermissionDenied, match="operate"):
                await cat.limits()
