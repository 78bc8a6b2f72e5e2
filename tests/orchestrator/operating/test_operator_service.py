"""Operators list, read and cancel the runs of their whole tenant, at any replica."""

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
"""Users by key; each key is the name of its holder. The suite's own client is ada."""

SLOW = [*content("thinking"), 3600.0]
ANSWER_TEXT = "the answer is a secret"


def make_filter(**fields: Any) -> operator_pb2.OperatorListRunsRequest:
    return operator_pb2.OperatorListRunsRequest(**fields)


async def ask(address: str, name: str, started: asyncio.Queue[str], agent_key: str = "react") -> None:
    """Ask as `name`, and put the run's id into `started` when its answer starts."""
    async with as_user(address, name) as client, client.ask("my secret question", agent_key=agent_key) as deltas:
        run_id = ""
        async for delta in deltas:
            run_id = delta.run_start.run_id or run_id
            if delta.HasField("content_start"):
                started.put_nowait(run_id)


async def list_states(client: Client, **fields: Any) -> dict[str, str]:
    return {run.user: run.state for run in (await client.tenant_runs(make_filter(**fields))).runs}


async def test_an_operator_lists_filters_and_cancels_runs_of_all_users(serve: Serve) -> None:
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
        assert await list_states(operator, user="bob", state="live") == {"bob": "running"}
        assert (
            await list_states(operator, agent_key="other") == await list_states(operator, older_than_ms=3_600_000) == {}
        )
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
        matching = (await operator.cancel_runs(matching=make_filter(user="bob"))).runs
        assert [(run.run_id, run.status) for run in matching] == [(runs["bob"], "cancelling")]
        async with as_user(suite.address, "stranger") as stranger:
            assert await list_states(stranger) == {"olga": "running"}
            await stranger.cancel_runs(matching=make_filter())
    async with serve(SLOW, keys=KEYS) as suite, as_user(suite.address, "operator") as operator:
        assert await list_states(operator, state="cancelled") == {"ada": "cancelled", "bob": "cancelled"}
        second_reply = (await operator.cancel_runs([runs["ada"]])).runs
        assert [run.status for run in second_reply] == ["ended"]
        assert not (await operator.cancel_runs(matching=make_filter())).runs


async def test_content_is_shown_only_to_auditors_and_reading_it_is_logged(serve: Serve) -> None:
    async with serve(answer(ANSWER_TEXT), keys=KEYS) as suite:
        async with as_user(suite.address, "ada") as ada, ada.ask("my secret question", agent_key="react") as deltas:
            events = [delta async for delta in deltas]
        run_id = next(event.run_start.run_id for event in events if event.HasField("run_start"))
        async with as_user(suite.address, "operator") as operator:
            with capture_logs() as logs:
                without_events = await operator.tenant_run(run_id)
                stripped = await operator.tenant_run(run_id, include_events=True)
            assert not [line for line in logs if line["event"] == "content read"]
        async with as_user(suite.address, "auditor") as auditor:
            with capture_logs() as logs:
                full = await auditor.tenant_run(run_id, include_events=True)
            [line] = [line for line in logs if line["event"] == "content read"]
            audit = "".join(path.read_text() for path in suite.config.config_dir.glob("data/chats/audit/*/*.jsonl"))
            [audit_record] = [
                record for record in map(json.loads, audit.splitlines()) if record["event"] == "content.read"
            ]
        async with as_user(suite.address, "stranger") as stranger:
            with pytest.raises(NotFound):
                await stranger.tenant_run(run_id)
    assert not without_events.events
    assert (audit_record["tenant"], audit_record["by"], audit_record["runId"], audit_record["of"]) == (
        "acme",
        "otto",
        run_id,
        "ada",
    )
    assert ANSWER_TEXT not in audit
    assert (without_events.run.state, without_events.run.reason, without_events.detail.finish_reason) == (
        "completed",
        "stop",
        "stop",
    )
    assert (without_events.run.model_calls, without_events.run.input_tokens, without_events.run.output_tokens) == (
        1,
        10,
        5,
    )
    assert (without_events.run.owner, without_events.run.lease_expires_at) == ("", 0)
    kinds = [[event.WhichOneof("payload") for event in events] for events in (stripped.events, full.events)]
    assert kinds[0] == kinds[1]
    assert (stripped.without_content, full.without_content) == (True, False)
    assert ANSWER_TEXT in str(full.events)
    assert "secret" not in str(stripped)
    assert [event.run_start.agent_key for event in stripped.events if event.HasField("run_start")] == ["react"]
    assert (line["run_id"], line["of"], line["by"]) == (run_id, "ada", "otto")


async def test_waiting_and_running_runs_have_different_states(serve: Serve) -> None:
    gated = call_tool("act", '{"at": 1}')
    async with (
        serve(gated, answer("Done."), keys=KEYS, toolConfig={"backends": ["act"]}) as suite,
        as_user(suite.address, "operator") as operator,
    ):
        suite.tools.tools.append(tool("act", "backend", approval="ask"))
        async with as_user(suite.address, "ada") as ada, ada.ask("hello", agent_key="react") as deltas:
            async for delta in deltas:
                if delta.HasField("gate_open"):
                    assert await list_states(operator, state="waiting") == {"ada": "waiting"}
                    assert await list_states(operator, state="running") == {}
                    assert await list_states(operator, state="live") == {"ada": "waiting"}
                    await operator.cancel_runs(matching=make_filter(state="waiting"))
        assert await list_states(operator) == {"ada": "cancelled"}


async def test_any_replica_cancels_a_run_and_lists_all_replicas(serve: Serve) -> None:
    async with serve(SLOW, keys=KEYS) as suite, two_replicas(suite) as (a, b), asyncio.TaskGroup() as group:
        started: asyncio.Queue[str] = asyncio.Queue()
        group.create_task(ask(a.address, "ada", started))
        run_id = await started.get()
        async with as_user(b.address, "operator") as operator:
            replicas = {replica.address: replica for replica in await operator.replicas()}
            assert {
                address: (listed_replica.runs, listed_replica.is_alive, listed_replica.is_this)
                for address, listed_replica in replicas.items()
            } == {
                a.address: (1, True, False),
                b.address: (0, True, True),
            }
            [run] = (await operator.tenant_runs()).runs
            assert (run.owner, run.lease_expires_at > 0) == (a.address, True)
            [cancelled] = (await operator.cancel_runs([run_id])).runs
            assert cancelled.status == "cancelling"
        async with as_user(b.address, "stranger") as stranger:
            assert [listed_replica.address for listed_replica in await stranger.replicas()] == [b.address]


async def test_all_operator_calls_need_the_scope_operate_and_valid_arguments(serve: Serve) -> None:
    async with (
        serve(SLOW, keys=KEYS) as suite,
        as_user(suite.address, "ada") as ada,
        as_user(suite.address, "operator") as op,
    ):
        denied_calls = (
            ada.tenant_runs(),
            ada.tenant_run(str(uuid.uuid4())),
            ada.cancel_runs(matching=make_filter()),
            ada.providers(),
            ada.replicas(),
        )
        for attempt in denied_calls:
            with pytest.raises(PermissionDenied, match="operate"):
                await attempt
        for invalid_call, field in (
            (op.cancel_runs(), "runIds"),
            (op.cancel_runs([str(uuid.uuid4())], matching=make_filter()), "runIds"),
            (op.cancel_runs(matching=make_filter(state="failed")), "filter.state"),
            (op.cancel_runs(["x"]), r"runIds\[0\]: must be a UUID"),
            (op.tenant_runs(make_filter(page_token="x")), "pageToken"),
            (op.tenant_runs(make_filter(older_than_ms=-1)), "olderThanMs"),
            (op.tenant_runs(make_filter(cost_at_least_nano_usd=-1)), "costAtLeastNanoUsd"),
        ):
            with pytest.raises(InvalidRequest, match=field):
                await invalid_call
        assert [provider.provider_key for provider in await op.providers()] == ["scripted"]


def test_strip_content_keeps_only_fields_known_to_be_harmless() -> None:
    run = operator_pb2.OperatorGetRunResponse()
    run.run.run_id, run.run.state, run.run.reason, run.run.input_tokens = "r", "failed", "said", 3
    strip_content(run)
    assert (run.run.run_id, run.run.state, run.run.reason, run.run.input_tokens) == ("r", "failed", "", 3)
