"""API keys from the command line."""

from pathlib import Path

from tests.support.command_line import run
from tests.support.facade.scripted import suite

NO_KEY = "11111111-1111-4111-8111-111111111111"


async def test_keys_are_made_shown_changed_and_revoked(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        flags = ("--user", "builds", "--service", "--scope", "ask", "--role", "ci", "--expires", "90d", "--rate", "60")
        _, out, _ = await run("keys", "create", "the build", *flags, url=facade.url)
        key_id, secret = out.decode().split()
        _, listed, _ = await run("keys", "list", url=facade.url)
        _, shown, _ = await run("keys", "show", key_id, url=facade.url)
        changes = ("--disable", "--no-expiry", "--no-roles", "--rate", "0", "--runs", "3", "--scope", "answer")
        updated, _, _ = await run("keys", "update", key_id, *changes, url=facade.url)
        _, changed, _ = await run("keys", "show", key_id, url=facade.url)
        revoked, _, _ = await run("keys", "revoke", key_id, url=facade.url)
        _, ended, _ = await run("keys", "list", "--state", "revoked", url=facade.url)
        missing, _, absent = await run("keys", "show", NO_KEY, url=facade.url)
    assert (updated, revoked, missing) == (0, 0, 1)
    assert secret.startswith("hrk_")
    assert secret.encode() not in listed + shown
    row = listed.decode().splitlines()[1].split()
    assert (row[:4], row[-2:]) == ([key_id, "unconfirmed", "builds", "ask"], ["the", "build"])
    text = shown.decode()
    assert "kind:                service\n" in text
    assert "requests per minute: 60\n" in text
    assert "roles:               ci\n" in text
    assert "expires:             20" in text
    words = [line.split() for line in changed.decode().splitlines()]
    assert [line for line in words if line[0] in ("state:", "runs", "scopes:")] == [
        ["scopes:", "answer"],
        ["state:", "unconfirmed"],
        ["runs", "max:", "3"],
    ]
    assert {"roles:", "expires:", "requests"}.isdisjoint(line[0] for line in words)
    assert ended.decode().splitlines()[1].startswith(key_id)
    assert b"does not exist" in absent


async def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        past, _, late = await run("keys", "create", "late", "--user", "ada", "--expires", "2020-01-31", url=facade.url)
        word, _, odd = await run("keys", "create", "odd", "--user", "two words", url=facade.url)
    assert (past, word) == (1, 1)
    assert b"expiresAt" in late
    assert b"user" in odd


async def test_users_are_suspended_listed_and_released(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        suspended, _, _ = await run("keys", "suspend", "bob", url=facade.url)
        _, listed, _ = await run("keys", "suspended", url=facade.url)
        released, _, _ = await run("keys", "release", "bob", url=facade.url)
        _, emptied, _ = await run("keys", "suspended", url=facade.url)
        unknown, _, absent = await run("keys", "release", "zoe", url=facade.url)
    assert (suspended, released, unknown) == (0, 0, 1)
    assert listed.decode().splitlines()[1].split()[0] == "bob"
    assert b"bob" not in emptied
    assert b"'zoe' is not suspended" in absent
