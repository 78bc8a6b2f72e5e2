"""Who may answer a gate according to its rule, at any replica and after a crash."""

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest

from headrace.errors import HeadraceError, InvalidRequest, NotFound, Overloaded, PermissionDenied
from headrace.v1 import agent_pb2, memory_pb2
from tests.support.orchestrator import ANSWER, Serve, as_json, call, finish, only, tool, two_replicas
from tests.support.orchestrator.answerers import ACCEPTED, APPROVE, DENIED, KEYS, LISTED, SILENT, as_user, asking, offer
from tests.support.orchestrator.crashes import Crashes
from tests.support.orchestrator.gate_runs import GateFollower, reading_run, try_answer, waiting_run
from tests.support.order import Event

RULES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "nothing is said": ({}, {"ada": ACCEPTED, "bob": SILENT, "operator": DENIED}),
    "a role": ({"any_of": ["role:finance"]}, {"bob": ACCEPTED, "ada": DENIED, "cleo": SILENT, "reader": DENIED}),
    "a user": ({"any_of": ["user:cleo"]}, {"cleo": ACCEPTED, "bob": SILENT, "ada": DENIED}),
    "the tenant": ({"any_of": ["tenant"]}, {"cleo": ACCEPTED, "stranger": SILENT, "ada": ACCEPTED}),
    "four eyes": ({"any_of": ["tenant"], "not_requester": True}, {"cleo": ACCEPTED, "ada": DENIED, "stranger": SILENT}),
    "four eyes, the requester's role too": (
        {"any_of": ["role:board", "user:bob"], "not_requester": True},
        {"bob": ACCEPTED, "ada": DENIED, "cleo": SILENT},
    ),
    "the requester or a role": (
        {"any_of": ["requester", "role:finance"]},
        {"bob": ACCEPTED, "ada": ACCEPTED, "cleo": SILENT},
    ),
}
"""A tool's rule, and the outcome of an answer by each of these users."""


@pytest.mark.parametrize("kind", ["approval", "form"])
@pytest.mark.parametrize("case", RULES)
async def test_only_users_named_by_the_rule_answer_and_see_a_gate(kind: str, case: str, serve: Serve) -> None:
    rule, outcomes = RULES[case]
    refused = [name for name, outcome in outcomes.items() if outcome != ACCEPTED]
    answerers = [name for name, outcome in outcomes.items() if outcome == ACCEPTED]
    async with waiting_run(serve, rule, kind) as (suite, gate, run):
        for name in refused:
            assert await try_answer(suite.address, name, gate) == outcomes[name], name
            async with as_user(suite.address, name) as client:
                assert [listed_gate.gate_id for listed_gate in (await client.gates()).gates] == [], name
                if outcomes[name] == SILENT:
                    with pytest.raises(NotFound):
                        await client.gate(*gate)
        if "reader" in refused:  # Her role may answer, but this key of hers may not.
            async with as_user(suite.address, "reader") as client:
                assert not (await client.gate(*gate)).HasField("arguments")
        for name in answerers:
            async with as_user(suite.address, name) as client:
                assert [listed_gate.gate_id for listed_gate in (await client.gates()).gates] == [gate[1]], name
                gate_details = await client.gate(*gate)
                assert (json.loads(gate_details.arguments), gate_details.requester) == ({"at": 1}, "ada")
        first, *others = answerers
        assert await try_answer(suite.address, first, gate) == ACCEPTED
        events = await run
        for name in others:
            assert await try_answer(suite.address, name, gate) in ("duplicate", "unmatched"), name
        audit = "".join(path.read_text() for path in suite.config.config_dir.glob("data/chats/audit/*/*.jsonl"))
    lines = [line for line in map(json.loads, audit.splitlines()) if line["event"] == "content.read"]
    assert [(line["by"], line["of"]) for line in lines] == [(name, "ada") for name in answerers if name != "ada"]
    user = KEYS[first].split(" ")[0].split("/")[1]
    assert only(events, "request.submit")["by"] == only(events, "gate.close")["answeredBy"] == user
    assert only(events, "request.submit")["credential"].startswith("api_key:")
    assert events[-1]["type"] == "run.complete"


async def test_answering_a_gate_opened_by_another_process_is_overloaded_not_unknown(serve: Serve) -> None:
    async with serve(asking("form"), ANSWER, keys=KEYS, **LISTED) as suite:
        offer(suite, {"any_of": ["user:cleo"]}, "form")

        async def add_another(request: memory_pb2.AppendRequest) -> None:
            for line in [line for line in request.lines if line.event.event.HasField("gate_open")]:
                request.lines.add().CopyFrom(line)
                request.lines[-1].event.event.gate_open.gate_id = "t_other"

        suite.memory.before = add_another
        async with reading_run(suite.client) as (gate, _, _), as_user(suite.address, "cleo") as cleo:
            other = gate[0], "t_other"
            assert await try_answer(suite.address, "cleo", other) == "OVERLOADED"
            assert await try_answer(suite.address, "bob", other) == SILENT
            with pytest.raises(Overloaded, match="another process"):
                await cleo.claim_gate(*other, "me")
            assert await try_answer(suite.address, "cleo", gate) == ACCEPTED


async def test_repeating_an_answer_accepted_by_another_process_is_accepted(serve: Serve) -> None:
    """Found by seed 1331 of trials/simulation: the answer was in the log, and its repetition got `unmatched`."""
    async with serve(asking("form"), ANSWER, keys=KEYS, **LISTED) as suite:
        offer(suite, {"any_of": ["user:cleo"]}, "form")

        async def add_answered(request: memory_pb2.AppendRequest) -> None:
            for opened in [line for line in request.lines if line.event.event.HasField("gate_open")]:
                submit = agent_pb2.RequestSubmit(tool_id="t_other", request_id="r", by="cleo", payload=APPROVE)
                close = agent_pb2.GateClose(gate_id="t_other", state="answered", answered_by="cleo")
                lines = [memory_pb2.LogLine.FromString(opened.SerializeToString()) for _ in range(3)]
                lines[0].event.event.gate_open.gate_id = "t_other"
                lines[1].event.event.request_submit.CopyFrom(submit)
                lines[2].event.event.gate_close.CopyFrom(close)
                request.lines.extend(lines)

        suite.memory.before = add_answered
        async with reading_run(suite.client) as (gate, _, _):
            other = gate[0], "t_other"
            assert await try_answer(suite.address, "cleo", other, request_id="r") == ACCEPTED
            assert await try_answer(suite.address, "cleo", other, request_id="later") == "duplicate"
            assert await try_answer(suite.address, "cleo", gate) == ACCEPTED


async def test_a_user_to_whom_another_process_escalated_a_gate_gets_overloaded_not_unknown(serve: Serve) -> None:
    """Found by seed 39100 of trials/simulation: the answer was refused with NOT_FOUND."""
    async with serve(asking("form"), ANSWER, keys=KEYS, **LISTED) as suite:
        offer(suite, {"any_of": ["user:bob"]}, "form")

        async def escalate(request: memory_pb2.AppendRequest) -> None:
            for line in [line for line in request.lines if line.event.event.HasField("gate_open")]:
                gate_id = line.event.event.gate_open.gate_id
                request.lines.add().CopyFrom(line)
                step = agent_pb2.GateStep(gate_id=gate_id, step="escalated", to=["user:cleo"])
                request.lines[-1].event.event.gate_step.CopyFrom(step)

        suite.memory.before = escalate
        async with reading_run(suite.client) as (gate, _, _), as_user(suite.address, "cleo") as cleo:
            assert [listed_gate.gate_id for listed_gate in (await cleo.gates()).gates] == [gate[1]]
            assert await try_answer(suite.address, "cleo", gate) == "OVERLOADED"
            assert await try_answer(suite.address, "stranger", gate) == SILENT
            assert await try_answer(suite.address, "bob", gate) == ACCEPTED


async def test_only_operators_list_the_gates_of_the_whole_tenant(serve: Serve) -> None:
    async with waiting_run(serve, {"any_of": ["user:cleo"]}) as (suite, gate, _):
        async with as_user(suite.address, "operator") as client:
            [listed] = (await client.gates(scope="tenant")).gates
            assert (listed.gate_id, [*listed.answerers.any_of]) == (gate[1], ["user:cleo"])
            gate_details = await client.gate(*gate)
            assert (gate_details.requester, gate_details.HasField("arguments")) == ("ada", False), (
                "operators do not see a gate's content"
            )
        async with as_user(suite.address, "auditor") as client:
            assert json.loads((await client.gate(*gate)).arguments) == {"at": 1}
        async with as_user(suite.address, "bob") as client:
            with pytest.raises(PermissionDenied, match="operate"):
                await client.gates(scope="tenant")
        async with as_user(suite.address, "ada") as client:
            assert [listed_gate.gate_id for listed_gate in (await client.gates(scope="own")).gates] == [gate[1]]
        assert await try_answer(suite.address, "cleo", gate) == ACCEPTED


async def test_an_answer_before_its_gate_opens_is_judged_by_the_rule(serve: Serve) -> None:
    early = [*call("confirm", '{"q":1}'), 0.3, *finish("tool_calls")]
    rule = {"any_of": ["tenant"], "not_requester": True}
    async with serve(early, ANSWER, keys=KEYS, **LISTED) as suite:
        offer(suite, rule)
        statuses: list[str] = []
        run_id = ""
        async with suite.client.ask("hello", agent_key="react") as deltas:
            async for delta in deltas:
                event = as_json(delta)
                run_id = event.get("runId", run_id)
                if event["type"] == "tool.start":
                    statuses.append(await try_answer(suite.address, "ada", (run_id, event["toolId"]), "1"))
                elif event["type"] == "gate.open":
                    statuses.append(await try_answer(suite.address, "bob", (run_id, event["gateId"]), "2"))
                elif event["type"] == "request.submit":
                    assert (event["by"], event["payload"]) == ("bob", 2)
        assert statuses == ["unmatched", ACCEPTED]


async def test_an_answer_before_its_question_is_complete_is_not_accepted(serve: Serve) -> None:
    first, remainder = call("ask_human", '{"question": "which?", "choices": ["a", "b"]}')
    keys = KEYS | {"ask only": "acme/ada board ask"}
    listed = {"toolConfig": {"frontends": ["ask_human"]}}
    async with serve([first, 0.5, remainder, 0.5, *finish("tool_calls")], ANSWER, keys=keys, **listed) as suite:
        suite.tools.tools += [tool("ask_human", "frontend", timeout_ms=100_000)]
        statuses: list[str] = []
        gate = "", ""
        async with suite.client.ask("hello", agent_key="react") as deltas:
            async for delta in deltas:
                event = as_json(delta)
                if event["type"] == "run.start":
                    gate = event["runId"], ""
                elif event["type"] == "tool.start":
                    gate = gate[0], event["toolId"]
                    statuses.append(await try_answer(suite.address, "ada", gate, '"c"'))
                    statuses.append(await try_answer(suite.address, "ask only", gate, '"a"'))
                elif event["type"] == "gate.open":
                    statuses.append(await try_answer(suite.address, "ada", gate, '"c"'))
                    statuses.append(await try_answer(suite.address, "ask only", gate, '"a"'))
                    statuses.append(await try_answer(suite.address, "ada", gate, '"b"'))
        assert statuses == ["unmatched", DENIED, "INVALID_REQUEST", DENIED, ACCEPTED]


async def test_the_rules_of_approvals_yaml_override_those_of_tools(serve: Serve, tmp_path: Any) -> None:
    (tmp_path / "approvals.yaml").write_text(
        'answerers: {anyOf: ["user:cleo"]}\n'
        'tools: {act: [{pattern: "", argument: at, then: ask, answerers: {notRequester: true}}]}\n'
    )
    turns = [call("act", '{"at": "x"}'), call("look", '{"at": "rm -rf x"}', call_id="call_2")]
    listed = {"toolConfig": {"backends": ["act", "look"]}}
    async with (
        serve(*[turn + finish("tool_calls") for turn in turns], ANSWER, keys=KEYS, **listed) as suite,
        asyncio.TaskGroup() as group,
    ):
        suite.tools.tools = [tool("act", "backend", answerers={"any_of": ["requester"]}), tool("look", "backend")]
        opened: asyncio.Queue[Event] = asyncio.Queue()

        async def follow() -> None:
            run_id = ""
            async with suite.client.ask("hello", agent_key="react") as deltas:
                async for delta in deltas:
                    run_id = delta.run_start.run_id or run_id
                    if delta.HasField("gate_open"):
                        opened.put_nowait(as_json(delta) | {"runId": run_id})

        group.create_task(follow())
        rules: dict[str, Any] = {}
        for _ in range(2):
            gate = await opened.get()
            rules[gate["toolName"]] = gate["answerers"]
            assert await try_answer(suite.address, "cleo", (gate["runId"], gate["gateId"])) == ACCEPTED
    assert rules["act"] == {"anyOf": ["tenant"], "notRequester": True}
    assert rules["look"]["anyOf"] == ["user:cleo"]


async def test_after_a_takeover_an_answer_before_its_gate_opens_is_not_accepted(serve: Serve) -> None:
    rule = {"any_of": ["tenant"], "not_requester": True}
    async with serve(asking("form"), ANSWER, keys=KEYS, **LISTED) as suite, two_replicas(suite) as (a, b):
        offer(suite, rule)
        crashes = Crashes(suite)
        before = suite.memory.before
        assert before is not None

        async def die_at_gate(request: memory_pb2.AppendRequest) -> None:
            if not request.generation and any(line.event.event.HasField("gate_open") for line in request.lines):
                crashes.kill(request.run_id)
            await before(request)

        suite.memory.before = die_at_gate
        events: list[Event] = []
        async with as_user(a.address, "ada") as ada:
            with suppress(HeadraceError):
                async with ada.ask("hello", agent_key="react") as deltas:
                    async for delta in deltas:
                        events.append(as_json(delta))
            await a.stop()
        gate = only(events, "run.start")["runId"], only(events, "tool.start")["toolId"]
        statuses = [await try_answer(b.address, "ada", gate, str(n)) for n in range(3)]
        assert ACCEPTED not in statuses
        async with as_user(b.address, "ada") as ada, ada.attach(gate[0], 0) as deltas:
            async for delta in deltas:
                if delta.HasField("gate_open"):
                    assert await try_answer(b.address, "ada", gate, "1") == DENIED
                    assert await try_answer(b.address, "bob", gate, "2") == ACCEPTED
                elif delta.HasField("request_submit"):
                    assert (delta.request_submit.by, delta.request_submit.payload) == ("bob", "2")


async def test_an_approval_submitted_as_a_tool_call_checks_the_payload(serve: Serve) -> None:
    async with waiting_run(serve, {}) as (suite, (run_id, gate_id), run):
        with pytest.raises(InvalidRequest, match="payload"):
            await suite.client.submit(run_id, '"yes"', tool_id=gate_id)
        assert await try_answer(suite.address, "ada", (run_id, gate_id)) == ACCEPTED
        assert (await run)[-1]["type"] == "run.complete"


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({"any_of": ["tenant"], "not_requester": True}, "without authentication"),
        ({"any_of": ["tenant"], "count": 2}, "2 users must approve, and without authentication"),
    ],
)
async def test_without_authentication_the_error_says_why_nobody_can_answer(
    serve: Serve, rule: dict[str, Any], problem: str
) -> None:
    async with serve(asking("approval"), ANSWER, **LISTED) as suite, asyncio.TaskGroup() as group:
        offer(suite, rule)
        follower = GateFollower()
        group.create_task(follower.follow(suite.client))
        gate = await follower.gate
        with pytest.raises(PermissionDenied, match=problem):
            await suite.client.answer_gate(*gate, APPROVE)
        await suite.client.cancel(gate[0])
