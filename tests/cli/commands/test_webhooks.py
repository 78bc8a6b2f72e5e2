"""Webhooks from the command line."""

from pathlib import Path

from tests.support.command_line import run
from tests.support.facade.scripted import suite

NO_WEBHOOK = "11111111-1111-4111-8111-111111111111"
TARGET = "https://events.example/headrace"


async def test_webhooks_are_made_changed_pinged_and_deleted(tmp_path: Path) -> None:
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


async def test_what_cannot_be_told_is_said(tmp_path: Path) -> None:
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
