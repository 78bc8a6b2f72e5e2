"""The limits in force: what each service holds a user to, who said it, and what its own tenant has used of it."""

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


async def look(client: Client, *whose: str, **more: str) -> Limits:
    found = await client.limits(*whose, **more)
    assert found.missing == ["llm_gateway"], "the scripted model lists none"
    return {(limit.name, limit.subject): limit for limit in found.limits}


async def look_at_new_key(client: Client, credential: str) -> Limits:
    """A key that was just made is known to a service a moment later."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(NotFound):
                return await look(client, "robot", key=credential)
            await asyncio.sleep(0.02)


async def test_every_service_says_what_holds_and_what_is_used_of_it(tmp_path: Path) -> None:
    (tmp_path / "budgets.yaml").write_text(json.dumps({"budgets": [BUDGET]}))
    async with (
        serving_tenants(tmp_path, runs_max=40, tenant_runs_max=7) as suite,
        suite.connect(KEYS[ADA]) as ada,
        suite.connect(KEYS[BOB]) as bob,
    ):
        made = await suite.make_key("ci", "robot", scopes=["ask", "operate"], runs_max=3, requests_per_minute=2)
        await ada.create_schedule("plain", "hello", cron="0 9 * * *")
        await ada.create_webhook("https://example.com/hook")
        await suite.ask(ADA, SLOW)
        seen, foreign = await look(ada), await look(bob)
        of_key = await look_at_new_key(ada, made.key.credential)
        with pytest.raises(NotFound, match=r"api_key:"):
            await bob.limits(key=made.key.credential)
    used = {name: seen[name, ""].used for name in ("runs", "tenant_runs", "tenant_queries", "webhooks", "schedules")}
    assert used == {"runs": 1, "tenant_runs": 1, "tenant_queries": 0, "webhooks": 1, "schedules": 1}
    assert {name: foreign[name, ""].used for name in used} == dict.fromkeys(used, 0)
    said = {name: (seen[name, ""].value, seen[name, ""].source, seen[name, ""].source_name) for name in used}
    assert said["runs"] == (40, "settings", "HEADRACE_ORCHESTRATOR_RUNS_MAX")
    assert said["tenant_runs"] == (7, "settings", "HEADRACE_ORCHESTRATOR_TENANT_RUNS_MAX")
    assert said["tenant_queries"] == (1000, "default", "HEADRACE_ORCHESTRATOR_TENANT_WAITING_MAX")
    assert said["webhooks"] == (20, "fixed", "")
    assert (seen["chat_queries", ""].value, seen["gates", ""].used) == (WAITING_MAX, 0)
    assert (seen["commands", ""].service, seen["commands", ""].used) == ("tools", 0)
    assert seen["upload_bytes", "pdf"].value == 50 * 1024 * 1024
    budget = seen["budget_money", "daily/user=ada"]
    assert (budget.value, budget.per, budget.source_name, budget.is_full) == (2_500_000_000, "user", "daily", False)
    assert budget.opens_at > 0
    assert ("key_runs", "") not in seen
    assert (of_key["key_runs", ""].value, of_key["key_requests", ""].value) == (3, 2)
    assert (of_key["schedules", ""].used, of_key["budget_money", "daily/user=robot"].used) == (0, 0)


async def test_what_is_used_up_says_so_and_when_it_opens(tmp_path: Path) -> None:
    (tmp_path / "budgets.yaml").write_text(json.dumps({"budgets": [BUDGET | {"usd": 0}]}))
    async with serving_tenants(tmp_path, tenant_runs_max=1) as suite, suite.connect(KEYS[ADA]) as ada:
        made = await suite.make_key("ci", "ada", scopes=["operate"], requests_per_minute=1)
        async with suite.connect(made.secret) as robot:
            while True:  # until the orchestrator has heard of the key, which is its one call of a minute
                try:
                    await look(robot)
                    break
                except Exception:
                    await asyncio.sleep(0.05)
        full = {name: limit for name, limit in (await look(ada, key=made.key.credential)).items() if limit.is_full}
        assert full.keys() == {("budget_money", "daily/user=ada"), ("key_requests", "")}
        assert all(limit.opens_at > 0 for limit in full.values())


async def test_it_is_for_operators_and_a_bad_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "budgets.yaml").write_text("budgets: [{id: x}]")
    async with serving_tenants(tmp_path) as suite, suite.connect(KEYS[ADA]) as ada:
        assert (await ada.limits()).missing == ["llm_gateway", "budgets"]
        made = await suite.make_key("own", "cat")
        async with suite.connect(made.secret) as cat:
            with pytest.raises(PermissionDenied, match="operate"):
                await cat.limits()
