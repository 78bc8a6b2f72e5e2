"""Runs of a tenant, providers and replicas from the command line."""

import json
import re
from pathlib import Path

from headrace.v1 import limits_pb2, operator_pb2
from tests.support.command_line import run
from tests.support.facade.scripted import RUN, suite

OTHER = "22222222-2222-4222-8222-222222222222"


async def test_runs_are_listed_shown_and_ended(tmp_path: Path) -> None:
    asked = ("--state", "live", "--agent", "clerk", "--user", "ada", "--older", "10", "--cost", "0.5")
    async with suite(tmp_path) as facade:
        listed = await run("runs", "list", *asked, "--count", "1", url=facade.url)
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
    asked = next(request for request in facade.script.requests if isinstance(request, limits_pb2.GetLimitsRequest))
    assert (asked.user, asked.agent_key, asked.key) == ("ada", "clerk", "")
    lines = [re.split(r"  +", line) for line in limits[1].decode().splitlines()]
    assert lines[0] == ["limit", "used", "of", "unit", "per", "state", "until", "set by"]
    assert lines[1][:6] == ["budget_money daily", "2.5", "2.5", "usd", "user", "full"]
    assert lines[2] == [
        *("tenant_runs", "3", "20", "chats", "tenant", "free", "-"),
        "settings: HEADRACE_ORCHESTRATOR_TENANT_RUNS_MAX",
    ]
    assert lines[3] == ["message_bytes", "-", "4194304", "bytes", "call", "free", "-", "fixed"]
    assert lines[4][5] == "half-open", "a breaker has the words of headrace providers"
    assert limits[2].decode() == "did not answer: tools\n"
    assert len(full) == 2
