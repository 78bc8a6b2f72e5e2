"""A user's facts, schedules, webhooks and authorizations from the command line."""

import json
import re
from pathlib import Path

import pytest

from tests.support.command_line import run
from tests.support.facade.authorizations import make_authorization
from tests.support.facade.scripted import suite

NO_FACT = "11111111-1111-4111-8111-111111111111"


async def test_facts_are_stored_listed_and_found(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        _, out, _ = await run("facts", "remember", "lives in Oslo", "--topic", "home town", url=facade.url)
        old = out.decode().strip()
        _, out, _ = await run("facts", "remember", "lives in\nRome", "--topic", "home town", url=facade.url)
        new = out.decode().strip()
        await run("facts", "remember", "likes tea", "--agent", "guide", url=facade.url)
        code, out, _ = await run("facts", "list", url=facade.url)
        _, ended, _ = await run("facts", "list", "--ended", "--scope", "user", url=facade.url)
        _, found, _ = await run("facts", "search", "where in Rome?", url=facade.url)
        refused, _, complaint = await run("facts", "remember", "x", "--tenant", url=facade.url)
        wrong, _, _ = await run("facts", "remember", "x", "--tenant", "--agent", "a", url=facade.url)
    assert code == 0
    head, *rows = (re.split(r"  +", line) for line in out.decode().splitlines())
    assert head == ["id", "updated", "scope", "agent", "topic", "text", "ended"]
    assert [row[2:] for row in rows] == [
        ["agent", "guide", "-", "likes tea", "-"],
        ["user", "-", "home town", "lives in Rome", "-"],
    ]
    assert rows[1][0] == new
    assert [line.split()[0] for line in ended.decode().splitlines()] == ["id", new, old]
    assert not ended.decode().endswith("-\n")
    assert found.decode().splitlines()[1].startswith(new)
    assert (refused, wrong) == (1, 2)
    assert b"HEADRACE_MEMORY_TENANT_FACTS" in complaint


async def test_facts_are_changed_exported_and_deleted(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        ids = [(await run("facts", "remember", text, url=facade.url))[1].decode().strip() for text in ("tea", "milk")]
        changed, _, _ = await run("facts", "edit", ids[0], "--text", "水", url=facade.url)
        nothing, _, _ = await run("facts", "edit", ids[0], url=facade.url)
        deleted, _, _ = await run("facts", "delete", ids[1], url=facade.url)
        missing, _, complaint = await run("facts", "delete", NO_FACT, url=facade.url)
        _, out, _ = await run("facts", "export", url=facade.url)
    assert (changed, nothing, deleted, missing) == (0, 2, 0, 1)
    assert b"does not exist" in complaint
    lines = [json.loads(line) for line in out.decode().splitlines()]
    assert [(line["factId"], line["text"], line["deletedAt"] > 0) for line in lines] == [
        (ids[0], "水", False),
        (ids[1], "", True),
    ]
    assert "水" in out.decode()


NO_SCHEDULE = "11111111-1111-4111-8111-111111111111"


async def test_schedules_are_created_shown_paused_and_deleted(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("zone_first", [True, False])
async def test_a_single_time_is_in_the_given_zone(tmp_path: Path, zone_first: bool) -> None:
    zone = ("--zone", "Asia/Tokyo")
    for at, next_at in (
        ("2999-12-01T09:30", "2999-12-01 09:30 Asia/Tokyo"),
        ("2999-12-01T09:30+01:00", "2999-12-01 17:30 Asia/Tokyo"),
    ):
        flags = (*zone, "--at", at) if zone_first else ("--at", at, *zone)
        async with suite(tmp_path) as facade:
            await run("schedules", "create", "guide", "once", *flags, url=facade.url)
            _, listed, _ = await run("schedules", "list", url=facade.url)
        assert next_at in listed.decode()


async def test_a_schedule_without_a_valid_time_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        none, _, _ = await run("schedules", "create", "guide", "hi", url=facade.url)
        both, _, _ = await run(
            "schedules", "create", "guide", "hi", "--cron", "* * * * *", "--at", "1h", url=facade.url
        )
        for time in ("soon", "0001-01-01"):
            word, _, complaint = await run("schedules", "create", "guide", "hi", "--at", time, url=facade.url)
            assert word == 2
            assert b"2030-01-31T09:30" in complaint
        for zone in ("Nowhere", "Europe"):
            flags = ("--at", "2999-12-01T09:30", "--zone", zone)
            _, _, nowhere = await run("schedules", "create", "guide", "hi", *flags, url=facade.url)
            assert b"timeZone: must be a name of the IANA database" in nowhere
        cron, _, refusal = await run("schedules", "create", "guide", "hi", "--cron", "61 * * * *", url=facade.url)
        missing, _, absent = await run("schedules", "show", NO_SCHEDULE, url=facade.url)
    assert (none, both, cron, missing) == (2, 2, 1, 1)
    assert b"cron: must be valid" in refusal
    assert b"does not exist" in absent


async def test_a_webhook_schedule_is_created_with_its_address_and_secret(tmp_path: Path) -> None:
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


NO_WEBHOOK = "11111111-1111-4111-8111-111111111111"
TARGET = "https://events.example/headrace"


async def test_webhooks_are_created_changed_pinged_and_deleted(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        flags = ("--type", "headrace.run.ended", "--agent", "guide", "--agent", "clerk")
        _, out, _ = await run("webhooks", "create", TARGET, *flags, url=facade.url)
        webhook_id, secret = out.decode().split()
        paused, _, _ = await run("webhooks", "pause", webhook_id, url=facade.url)
        _, listed, _ = await run("webhooks", "list", url=facade.url)
        resumed, _, _ = await run("webhooks", "resume", webhook_id, url=facade.url)
        updated, _, _ = await run("webhooks", "update", webhook_id, "--all-agents", "--name", "Ops", url=facade.url)
        _, changed, _ = await run("webhooks", "list", url=facade.url)
        _, rotated, _ = await run("webhooks", "rotate", webhook_id, "--keep", "60", url=facade.url)
        _, pinged, _ = await run("webhooks", "ping", webhook_id, url=facade.url)
        _, deliveries, _ = await run("webhooks", "deliveries", webhook_id, "--state", "delivered", url=facade.url)
        _, replayed, _ = await run("webhooks", "replay", webhook_id, url=facade.url)
        deleted, _, _ = await run("webhooks", "delete", webhook_id, url=facade.url)
        _, nothing, _ = await run("webhooks", "list", url=facade.url)
    assert (paused, resumed, updated, deleted, nothing.count(b"\n")) == (0, 0, 0, 0, 1)
    row = [webhook_id, TARGET, "headrace.run.ended"]
    assert listed.decode().splitlines()[0].split() == ["id", "url", "types", "agents", "state", "name"]
    assert listed.decode().splitlines()[1].split() == [*row, "guide,clerk", "paused", "events.example"]
    assert changed.decode().splitlines()[1].split() == [*row, "all", "active", "Ops"]
    assert secret.startswith("whsec_")
    assert rotated.startswith(b"whsec_")
    assert rotated.decode().strip() != secret
    assert pinged == b"delivered, answered with 204\n"
    assert b"  delivered  " in deliveries
    assert b"headrace.ping" in deliveries
    assert replayed == b"0 on their way\n"


async def test_an_invalid_webhook_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        plain, _, insecure = await run("webhooks", "create", "http://events.example/", url=facade.url)
        inside, _, private = await run("webhooks", "create", "https://10.0.0.1/", url=facade.url)
        word, _, unknown = await run("webhooks", "create", TARGET, "--type", "run.began", url=facade.url)
        missing, _, absent = await run("webhooks", "ping", NO_WEBHOOK, url=facade.url)
    assert (plain, inside, word, missing) == (1, 1, 2, 1)
    assert b"only https" in insecure
    assert b"a private address" in private
    assert b"headrace.run.ended" in unknown
    assert b"does not exist" in absent


async def test_authorizations_are_listed_and_revoked(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        facade.tools.authorizations = [
            make_authorization("mail", expires_at=1_700_000_100_000, renewable=True),
            make_authorization("notes", expires_at=1_700_000_100_000, in_use=False),
        ]
        code, out, _ = await run("authorizations", "list", url=facade.url)
        _, mail, _ = await run("authorizations", "revoke", "mail", url=facade.url)
        _, notes, _ = await run("authorizations", "revoke", "notes", url=facade.url)
        missing, _, complaint = await run("authorizations", "revoke", "mail", url=facade.url)
        _, nothing, _ = await run("authorizations", "list", url=facade.url)
    assert code == 0
    head, first, second = (re.split(r"  +", line) for line in out.decode().splitlines())
    assert head == ["server", "authorized", "issuer", "expires", "renewable", "in use"]
    assert (first[0], first[2], first[4:]) == ("mail", "https://login.example/", ["yes", "yes"])
    assert second[1].startswith("2023-11-1")
    assert second[3].startswith("2023-11-1")
    assert (second[0], second[4:]) == ("notes", ["-", "-"])
    assert mail == b"revoked\n"
    assert notes.startswith(b"revoked here; ")
    assert (missing, nothing.split()[:2]) == (1, [b"server", b"authorized"])
    assert b"have not authorized" in complaint
