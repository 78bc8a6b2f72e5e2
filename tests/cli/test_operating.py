"""Operators' commands: runs, providers, limits, keys, spend, the audit log and tools."""

import json
import re
from pathlib import Path

from headrace.v1 import limits_pb2, operator_pb2, tools_pb2
from tests.support.command_line import run
from tests.support.facade.scripted import RUN, suite

OTHER = "22222222-2222-4222-8222-222222222222"


async def test_runs_are_listed_shown_and_cancelled(tmp_path: Path) -> None:
    filters = ("--state", "live", "--agent", "clerk", "--user", "ada", "--older", "10", "--cost", "0.5")
    async with suite(tmp_path) as facade:
        listed = await run("runs", "list", *filters, "--count", "1", url=facade.url)
        shown = await run("runs", "show", RUN, "--events", url=facade.url)
        ended = await run("runs", "cancel", OTHER, RUN, url=facade.url)
        swept = await run("runs", "cancel", "--all", "--user", "ada", url=facade.url)
        wrong = [await run("runs", "cancel", *rest, url=facade.url) for rest in ([], ["--all", RUN])]
    first, second, third, fourth = facade.script.requests
    assert first == operator_pb2.OperatorListRunsRequest(
        state="live",
        agent_key="clerk",
        user="ada",
        older_than_ms=600_000,
        cost_at_least_nano_usd=500_000_000,
        page_size=1,
    )
    head, row = listed[1].decode().splitlines()
    assert head.split() == ["id", "began", "state", "user", "agent", "usd", "calls", "owner"]
    assert row.split()[0] == RUN
    assert row.split()[-6:] == ["waiting", "ada", "clerk", "0.001500", "2", "a:7001"]
    assert b"--count" in listed[2]
    assert (second.run_id, second.include_events) == (RUN, True)
    assert json.loads(shown[1])["run"]["user"] == "ada"
    assert [*third.run_ids] == [OTHER, RUN]
    assert ended[0] == 1
    assert [line.split() for line in ended[1].decode().splitlines()] == [
        ["id", "status", "reason"],
        [OTHER, "cancelling", "-"],
        [RUN, "failed", "OVERLOADED"],
    ]
    assert fourth.filter == operator_pb2.OperatorListRunsRequest(user="ada", page_size=50)
    assert b"more" in swept[2]
    assert [result[0] for result in wrong] == [2, 2]


async def test_providers_and_replicas_are_shown(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        providers = (await run("providers", url=facade.url))[1].decode().splitlines()
        limits = await run("limits", "--user", "ada", "--agent", "clerk", url=facade.url)
        full = (await run("limits", "--full", url=facade.url))[1].decode().splitlines()
        replicas = (await run("replicas", url=facade.url))[1].decode().splitlines()
    assert [line.split() for line in providers] == [
        ["model", "breaker", "attempts", "errors", "median", "p95", "running", "waiting", "refused"],
        ["prov/fine", "closed", "12", "25%", "420", "-", "2", "1", "temperature"],
        ["prov/idle", "open", "for", "5", "s", "0", "-", "-", "-", "2", "1"],
    ]
    assert [line.split()[:3] for line in replicas[1:]] == [["a:7001", "alive", "2"], ["b:7001", "answers", "0"]]
    limits_request = next(
        request for request in facade.script.requests if isinstance(request, limits_pb2.GetLimitsRequest)
    )
    assert (limits_request.user, limits_request.agent_key, limits_request.key) == ("ada", "clerk", "")
    lines = [re.split(r"  +", line) for line in limits[1].decode().splitlines()]
    assert lines[0] == ["limit", "used", "of", "unit", "per", "state", "until", "set by"]
    assert lines[1][:6] == ["budget_money daily", "2.5", "2.5", "usd", "user", "full"]
    assert lines[2] == [
        *("tenant_runs", "3", "20", "chats", "tenant", "free", "-"),
        "settings: HEADRACE_ORCHESTRATOR_TENANT_RUNS_MAX",
    ]
    assert lines[3] == ["message_bytes", "-", "4194304", "bytes", "call", "free", "-", "fixed"]
    assert lines[4][5] == "half-open", "a breaker is described as in headrace providers"
    assert limits[2].decode() == "did not answer: tools\n"
    assert len(full) == 2


NO_KEY = "11111111-1111-4111-8111-111111111111"


async def test_keys_are_created_shown_changed_and_revoked(tmp_path: Path) -> None:
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


async def test_an_invalid_key_is_refused_naming_the_field(tmp_path: Path) -> None:
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


async def test_spend_prints_a_table_by_day_with_its_total(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        code, table, _ = await run("spend", url=facade.url)
        _, by_agent, _ = await run("spend", "--by", "day", "--by", "agent", "--tenant", "--user", "ada", url=facade.url)
        wrong = await run("spend", "--by", "tenant", url=facade.url)
    assert (code, wrong[0]) == (0, 2)
    assert [line.split() for line in table.decode().splitlines()] == [
        ["day", "usd", "in", "cached", "out", "calls"],
        ["2026-11-22", "1.500000", "1200", "1000", "34", "2"],
        ["2026-11-23", "0.004000", "1200", "1000", "34", "2"],
        ["total", "1.504000", "2400", "2000", "68", "4"],
    ]
    assert by_agent.decode().splitlines()[2].split()[:3] == ["2026-11-23", "clerk", "0.004000"]
    request = facade.script.requests[1]
    assert (list(request.group_by), request.scope, request.user) == (["day", "agent"], "tenant", "ada")


async def test_the_audit_log_is_shown_exported_and_verified(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    async with suite(tmp_path) as facade:
        await run("keys", "create", "the build", "--user", "builds", url=facade.url)
        _, shown, _ = await run("audit", "tail", "--event", "key", url=facade.url)
        exported, _, export_message = await run("audit", "export", "--output", str(path), url=facade.url)
        _, stored, _ = await run("audit", "verify", url=facade.url)
    assert exported == 0
    head, line = shown.decode().splitlines()
    assert head.split() == ["number", "at", "event", "by", "facts"]
    assert line.split()[3] == "key.made"
    assert b"of=builds" in shown
    lines = path.read_text().splitlines()
    last = json.loads(lines[-1])
    assert (last["event"], last["hash"] in export_message.decode()) == ("audit.exported", True)
    assert b"2 lines are as they were written" in stored
    assert (await run("audit", "verify", str(path), "--hash", last["hash"], url=""))[0] == 0
    for changed, place in (
        ([lines[0].replace("builds", "others"), lines[1]], b"line 1, after number 0, was changed"),
        (lines[:1], b"line 2 is missing: the file is cut"),
        (lines[::-1], b"line 2, after number 2, does not follow"),
    ):
        path.write_text("".join(f"{line}\n" for line in changed))
        code, _, problem = await run("audit", "verify", str(path), url="")
        assert code == 1
        assert place in problem


async def test_tools_are_listed_with_the_reason_why_they_cannot_be_used(tmp_path: Path) -> None:
    async with suite(tmp_path) as facade:
        facade.tools.listed = [
            tools_pb2.Tool(name="read_file", tier="core", effect="read"),
            tools_pb2.Tool(name="s__bad", tier="enabled", effect="once", unavailable="inputSchema: a list"),
        ]
        code, out, _ = await run("tools", url=facade.url)
    head, *rows = [line.split(maxsplit=3) for line in out.decode().splitlines()]
    assert (code, head) == (0, ["tool", "tier", "effect", "cannot be used"])
    assert rows == [["read_file", "core", "read", "-"], ["s__bad", "enabled", "once", "inputSchema: a list"]]
