"""Schedules from the command line."""

import re
from pathlib import Path

from tests.support.command_line import run
from tests.support.facade.scripted import suite

NO_SCHEDULE = "11111111-1111-4111-8111-111111111111"


async def test_schedules_are_made_shown_paused_and_deleted(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        flags = ("--cron", "30 9 * * 1-5", "--zone", "Europe/Berlin", "--queue", "--catch-up", "--jitter", "5")
        _, out, _ = await run("schedules", "create", "guide", "any\nnews?", *flags, url=facade.url)
        daily = out.decode().strip()
        _, out, _ = await run("schedules", "create", "guide", "once", "--at", "3d", "--name", "Later", url=facade.url)
        later = out.decode().strip()
        paused, _, _ = await run("schedules", "pause", daily, url=facade.url)
        _, listed, _ = await run("schedules", "list", url=facade.url)
        resumed, _, _ = await run("schedules", "resume", daily, url=facade.url)
        triggered, _, _ = await run("schedules", "trigger", daily, url=facade.url)
        _, shown, _ = await run("schedules", "show", daily, url=facade.url)
        deleted, _, _ = await run("schedules", "delete", daily, later, url=facade.url)
        _, nothing, _ = await run("schedules", "list", url=facade.url)
    assert (paused, resumed, triggered, deleted) == (0, 0, 0, 0)
    assert nothing.decode().split() == ["id", "times", "next", "last", "agent", "user", "name"]
    head, *rows = (re.split(r"  +", line) for line in listed.decode().splitlines())
    assert head == ["id", "times", "next", "last", "agent", "user", "name"]
    assert rows[0] == [daily, "30 9 * * 1-5 (Europe/Berlin)", "paused", "-", "guide", "default", "any news?"]
    assert rows[1][:2] == [later, "once"]
    assert rows[1][2].startswith("20")
    assert rows[1][-1] == "Later"
    assert b"paused" not in shown
    assert b"\nmessage: any\nnews?\n" in shown


async def test_what_has_no_time_is_told(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        none, _, _ = await run("schedules", "create", "guide", "hi", url=facade.url)
        both, _, _ = await run(
            "schedules", "create", "guide", "hi", "--cron", "* * * * *", "--at", "1h", url=facade.url
        )
        word, _, complaint = await run("schedules", "create", "guide", "hi", "--at", "soon", url=facade.url)
        cron, _, refusal = await run("schedules", "create", "guide", "hi", "--cron", "61 * * * *", url=facade.url)
        missing, _, absent = await run("schedules", "show", NO_SCHEDULE, url=facade.url)
    assert (none, both, word, cron, missing) == (2, 2, 2, 1, 1)
    assert b"2030-01-31T09:30" in complaint
    assert b"cron: must be valid" in refusal
    assert b"does not exist" in absent


async def test_a_schedule_for_posts_is_made_with_its_address_and_secret(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        _, out, _ = await run("schedules", "create", "guide", "Read {{payload}}", "--on-webhook", url=facade.url)
        schedule_id, address, first = out.decode().split()
        _, out, _ = await run("schedules", "secret", schedule_id, url=facade.url)
        _, listed, _ = await run("schedules", "list", url=facade.url)
    assert address == f"{facade.url}/hooks/{schedule_id}"
    assert first.startswith("whsec_")
    assert out.decode().strip().startswith("whsec_") != (out.decode().strip() == first)
    row = re.split(r"  +", listed.decode().splitlines()[1])
    assert row == [schedule_id, "on webhook", "-", "-", "guide", "default", "Read {{payload}}"]
