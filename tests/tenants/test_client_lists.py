"""What the client lists page by page is whole."""

from pathlib import Path

from tests.support.tenants.suite import ADA, KEYS, serving_tenants

PAGE_SIZE = 50
"""Schedules on a page, where the request says nothing."""


async def test_a_client_lists_all_schedules_of_its_user(tmp_path: Path) -> None:
    async with serving_tenants(tmp_path) as suite, suite.connect(KEYS[ADA]) as client:
        made = [await client.create_schedule("plain", "hello", cron="0 0 1 1 *") for _ in range(PAGE_SIZE + 1)]
        assert [one.schedule_id for one in await client.schedules()] == [one.schedule_id for one in made]
