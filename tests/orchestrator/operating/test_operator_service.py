"""Runs of a whole tenant as its operators see and end them, at any replica."""

import asyncio
import json
import uuid
from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace.client import Client
from headrace.errors import InvalidRequest, NotFound, PermissionDenied
from headrace.v1 import operator_pb2
from services.orchestrator.operating.operator_service import strip_content
from tests.support.orchestrator import Serve, answer, call_tool, content, tool, two_replicas
from tests.support.orchestrator.answerers import as_user

KEYS = {
    "ada": "acme/ada",
    "bob": "acme/bob",
    "operator": "acme/olga ops operate",
    "auditor": "acme/otto ops operate,read_content",
    "stranger": "globex/olga ops ask,operate,read_content",
}
"""By the key, which is the name of whoever has it here; the suite's own client is ada."""

SLOW = [*content("thinking"), 3600.0]
SAID = "the answer is a secret"


def wanted(**fields: Any) -> operator_pb2.OperatorListRunsRequest:
    return operator_pb2.OperatorListRunsRequest(**fields)


async def ask(address: str, name: str, started: asyncio.Queue[str], agent_key: str = "react") -> None:
    """Ask as `name`, and say which run it is when its model has begun."""
    async with as_user(address, name) as client, client.ask("my secret question", agent_key=agent_key) as deltas:
        run_id = ""
        async for delta in deltas:
            run_id = delta.run_start.run_id or run_id
            if delta.HasField("content_start"):
                started.put_nowait(run_id)


async def states(client: Client, **fields: Any) -> dict[str, str]:
    return {run.user: run.state for run in (await client.tenant_runs(wanted(**fields))).runs}


async def test_runs_of_all_users_are_listed_found_and_ended(serve: Serve) -> None:
    async with (
        serve(SLOW, keys=KEYS) as suite,
        as_user(suite.address, "operator") as operator,
        asyncio.TaskGroup() as group,
    ):
        started: asyncio.Queue[str] = asyncio.Queue()
        runs: dict[str, str] = {}
        for name in ("ada", "bob", "stranger"):
            group.create_task(ask(suite.address, name, started))
            runs[name] = await started.get()
        listed = (await operator.tenant_runs()).runs
        assert [(run.run_id, run.user, run.state, run.agent_key) for run in listed] == [
            (runs["bob"], "bob", "running", "react"),
            (runs["ada"], "ada", "running", "react"),
        ]
        assert all(run.owner and run.lease_expires_at and run.credential.startswith("api_key:") for run in listed)
        assert await states(operator, user="bob", state="live") == {"bob": "running"}
        assert await states(operator, agent_key="other") == await states(operator, older_than_ms=3_600_000) == {}
        with capture_logs() as logs:
            nobody = str(uuid.uuid4())
            cancelled = (await operator.cancel_runs([runs["ada"], runs["stranger"], nobody])).runs
        assert [(run.run_id, run.status) for run in cancelled] == [
            (runs["ada"], "cancelling"),
            (runs["stranger"], "not_found"),
            (nobody, "not_found"),
        ]
        assert [(line["run_id"], line["of"], line["by"]) for line in logs if line["event"] == "run cancelled"] == [
            (runs["ada"], "ada", "olga")
        ]
        matching = (await operator.cancel_runs(matching=wanted(user="bob"))).runs
        assert [(run.run_id, run.status) for run in matching] == [(runs["bob"], "cancelling")]
        async with as_user(suite.address, "stranger") as stranger:
            assert await states(stranger) == {"olga": "running"}
            await stranger.cancel_runs(matching=wanted())
    async with serve(SLOW, keys=KEYS) as suite, as_user(suite.address, "operator") as operator:
        assert await states(operator, state="cancelled") == {"ada": "cancelled", "bob": "cancelled"}
        again = (await operator.cancel_runs([runs["ada"]])).runs
        assert [run.status for run in again] == ["ended"]
        assert not (await operator.cancel_runs(matching=wanted())).runs


async def test_what_was_said_is_shown_to_whom_it_may_be_and_that_is_logged(serve: Serve) -> None:
    async with serve(answer(SAID), keys=KEYS) as suite:
        async with as_user(suite.address, "ada") as ada, ada.ask("my secret question", agent_key="react") as deltas:
            events = [delta async for delta in deltas]
        run_id = next(event.run_start.run_id for event in events if event.HasField("run_start"))
        async with as_user(suite.address, "operator") as operator:
            with capture_logs() as logs:
                bare = await operator.tenant_run(run_id)
                without = await operator.tenant_run(run_id, include_events=True)
            assert not [line for line in logs if line["event"] == "content read"]
        async with as_user(suite.address, "auditor") as auditor:
            with capture_logs() as logs:
                whole = await auditor.tenant_run(run_id, include_events=True)
            [line] = [line for line in logs if line["event"] == "content read"]
            audit = "".join(path.read_text() for path in suite.config.config_dir.glob("data/chats/audit/*/*.jsonl"))
            [read] = [record for record in map(json.loads, audit.splitlines()) if record["event"] == "content.read"]
        async with as_user(suite.address, "stranger") as stranger:
            with pytest.raises(NotFound):
                await stranger.tenant_run(run_id)
    assert not bare.events
    assert (read["tenant"], read["by"], read["runId"], read["of"]) == ("acme", "otto", run_id, "ada")
    assert SAID not in audit
    assert (bare.run.state, bare.run.reason, bare.detail.finish_reason) == ("completed", "stop", "stop")
    assert (bare.run.model_calls, bare.run.input_tokens, bare.run.output_tokens) == (1, 10, 5)
    assert (bare.run.owner, bare.run.lease_expires_at) == ("", 0)
    kinds = [[event.WhichOneof("payload") for event in events] for events in (without.events, whole.events)]
    assert kinds[0] == kinds[1]
    assert (without.without_content, whole.without_content) == (True, False)
    assert SAID in str(whole.events)
    assert "secret" not in str(without)
    assert [event.run_start.agent_key for event in without.events if event.HasField("run_start")] == ["react"]
    assert (line["run_id"], line["of"], line["by"]) == (run_id, "ada", "otto")


async def test_a_run_that_waits_for_a_person_is_told_from_one_that_works(serve: Serve) -> None:
    gated = call_tool("act", '{"at": 1}')
    async with (
        serve(gated, answer("Done."), keys=KEYS, toolConfig={"backends": ["act"]}) as suite,
        as_user(suite.address, "operator") as operator,
    ):
        suite.tools.tools.append(tool("act", "backend", approval="ask"))
        async with as_user(suite.address, "ada") as ada, ada.ask("hello", agent_key="react") as deltas:
            async for delta in deltas:
                if delta.HasField("gate_open"):
                    assert await states(operator, state="waiting") == {"ada": "waiting"}
                    assert await states(operator, state="running") == {}
                    assert await states(operator, state="live") == {"ada": "waiting"}
                    await operator.cancel_runs(matching=wanted(state="waiting"))
        assert await states(operator) == {"ada": "cancelled"}


async def test_any_replica_ends_a_run_and_names_the_others(serve: Serve) -> None:
    async with serve(SLOW, keys=KEYS) as suite, two_replicas(suite) as (a, b), asyncio.TaskGroup() as group:
        started: asyncio.Queue[str] = asyncio.Queue()
        group.create_task(ask(a.address, "ada", started))
        run_id = await started.get()
        async with as_user(b.address, "operator") as operator:
            replicas = {replica.address: replica for replica in await operator.replicas()}
            assert {address: (one.runs, one.is_alive, one.is_this) for address, one in replicas.items()} == {
                a.address: (1, True, False),
                b.address: (0, True, True),
            }
            [run] = (await operator.tenant_runs()).runs
            assert (run.owner, run.lease_expires_at > 0) == (a.address, True)
            [cancelled] = (await operator.cancel_runs([run_id])).runs
            assert cancelled.status == "cancelling"
        async with as_user(b.address, "stranger") as stranger:
            assert [one.address for one in await stranger.replicas()] == [b.address]


async def test_all_of_it_is_for_operators(serve: Serve) -> None:
    async with (
        serve(SLOW, keys=KEYS) as suite,
        as_user(suite.address, "ada") as ada,
        as_user(suite.address, "operator") as op,
    ):
        refused = (
            ada.tenant_runs(),
            ada.tenant_run(str(uuid.uuid4())),
            ada.cancel_runs(matching=wanted()),
            ada.providers(),
            ada.replicas(),
        )
        for attempt in refused:
            with pytest.raises(PermissionDenied, match="operate"):
                await attempt
        for given, field in (
            (op.cancel_runs(), "runIds"),
            (op.cancel_runs([str(uuid.uuid4())], matching=wanted()), "runIds"),
            (op.cancel_runs(matching=wanted(state="failed")), "filter.state"),
            (op.cancel_runs(["x"]), r"runIds\[0\]: must be a UUID"),
            (op.tenant_runs(wanted(page_token="x")), "pageToken"),
            (op.tenant_runs(wanted(older_than_ms=-1)), "olderThanMs"),
            (op.tenant_runs(wanted(cost_at_least_nano_usd=-1)), "costAtLeastNanoUsd"),
        ):
            with pytest.raises(InvalidRequest, match=field):
                await given
        assert [provider.provider_key for provider in await op.providers()] == ["scripted"]


def test_what_is_not_known_to_be_harmless_is_content() -> None:
    run = operator_pb2.OperatorGetRunResponse()
    run.run.run_id, run.run.state, run.run.reason, run.run.input_tokens = "r", "failed", "said", 3
    strip_content(run)
    assert (run.run.run_id, run.run.state, run.run.reason, run.run.input_tokens) == ("r", "failed", "", 3)
