"""Claims of gates: only the claiming client answers, and others learn who it is, at any replica and after a crash."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from headrace.client import Client
from headrace.errors import Claimed, InvalidRequest, NotFound, PermissionDenied
from headrace.v1 import memory_pb2
from tests.support.orchestrator import ANSWER, Serve, answers, ask, kinds, only, submit, two_replicas
from tests.support.orchestrator.answerers import ACCEPTED, KEYS, LISTED, as_user, asking, offer
from tests.support.orchestrator.gate_runs import killing_owner, read_as, reading_run, try_answer, waiting_run
from tests.support.order import Event

TENANT = {"any_of": ["tenant"]}


async def list_claims(client: Client) -> list[tuple[str, bool]]:
    """Return, for each open gate in the stored list, who has claimed it and whether the claim has an end."""
    return [(gate.claimed_by, gate.HasField("claimed_until")) for gate in (await client.gates()).gates]


@pytest.mark.parametrize("kind", ["approval", "form"])
async def test_only_the_client_that_has_claimed_a_gate_answers_it(kind: str, serve: Serve) -> None:
    async with serve(asking(kind), ANSWER, **LISTED) as suite:
        offer(suite, {}, kind)

        async def answer(opened: Event) -> None:
            place = opened["runId"], opened["gateId"]
            payload = '{"decision": "approve"}'
            claim = await suite.client.claim_gate(*place, "tab 1", lease_ms=300_000)
            assert (claim.status, claim.claimed_by) == ("claimed", "default")
            assert 0 < claim.claimed_until <= opened["expiresAt"]
            assert await list_claims(suite.client) == [("default", True)]
            again = await suite.client.claim_gate(*place, "tab 1", lease_ms=300_000)
            assert again.claimed_until == claim.claimed_until, "the claim is unchanged, and no line is written"
            with pytest.raises(Claimed, match="being answered by 'default' until 20") as caught:
                await suite.client.claim_gate(*place, "tab 2")
            assert caught.value.metadata["claimedBy"] == "default"
            assert int(caught.value.metadata["until"]) == claim.claimed_until
            for holder in (None, "tab 2"):
                with pytest.raises(Claimed):
                    await suite.client.answer_gate(*place, payload, holder=holder)
            with pytest.raises(Claimed):
                await submit(suite, *place, {"decision": "approve"})
            assert not await suite.client.release_gate(*place, "tab 2"), "the claim is not this client's"
            assert await suite.client.release_gate(*place, "tab 1")
            assert not await suite.client.release_gate(*place, "tab 1")
            assert await list_claims(suite.client) == [("", False)]
            await suite.client.claim_gate(*place, "tab 2")
            reply = await suite.client.answer_gate(*place, payload, holder="tab 2")
            assert reply.status == "accepted"

        events = await ask(suite, ("gate.open", answer))
        gate = await suite.client.gate(suite.run_ids[0], only(events, "gate.open")["gateId"])
        assert not gate.HasField("claimed_by"), "a closed gate is nobody's"
        assert (await suite.client.claim_gate(suite.run_ids[0], gate.gate_id, "tab 1")).status == "closed"
        assert not await suite.client.release_gate(suite.run_ids[0], gate.gate_id, "tab 2")
    steps = [(e["step"], e["holder"], e["by"], "until" in e) for e in events if e["type"] == "gate.step"]
    assert steps == [
        ("claimed", "tab 1", "default", True),
        ("released", "tab 1", "default", False),
        ("claimed", "tab 2", "default", True),
    ]


async def test_a_claim_ends_with_its_lease_and_is_renewed_in_its_second_half(serve: Serve) -> None:
    async with serve(asking("form"), ANSWER, **LISTED) as suite:
        offer(suite, {}, "form")

        async def answer(opened: Event) -> None:
            place = opened["runId"], opened["gateId"]
            claim = await suite.client.claim_gate(*place, "tab 1", lease_ms=1000)
            while (again := await suite.client.claim_gate(*place, "tab 1", lease_ms=1000)) == claim:
                await asyncio.sleep(0.05)
            assert again.claimed_until > claim.claimed_until
            while True:  # The other tab retries until the lease is over.
                try:
                    await suite.client.claim_gate(*place, "tab 2")
                    break
                except Claimed:
                    await asyncio.sleep(0.05)
            with pytest.raises(Claimed):
                await suite.client.answer_gate(*place, "1", holder="tab 1")
            await suite.client.answer_gate(*place, "1", holder="tab 2")

        events = await ask(suite, ("gate.open", answer))
    assert [e["holder"] for e in events if e["type"] == "gate.step"] == ["tab 1", "tab 1", "tab 2"]
    assert kinds(events, "gate.close") == ["gate.close"]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [({"lease_ms": 999}, "leaseMs"), ({"lease_ms": 600_001}, "leaseMs"), ({"holder": ""}, "holder")],
)
async def test_an_invalid_claim_is_refused_with_its_field(fields: Any, problem: str, serve: Serve) -> None:
    async with serve(asking("form"), ANSWER, **LISTED) as suite:
        offer(suite, {}, "form")

        async def answer(opened: Event) -> None:
            given: dict[str, Any] = {"holder": "tab"} | fields
            with pytest.raises(InvalidRequest, match=problem):
                await suite.client.claim_gate(opened["runId"], opened["gateId"], **given)
            with pytest.raises(NotFound):
                await suite.client.claim_gate(opened["runId"], "other", "tab")
            await answers(suite, 1)(opened)

        await ask(suite, ("gate.open", answer))


async def test_only_answerers_claim_a_gate_and_one_at_a_time_across_replicas(serve: Serve) -> None:
    rule = {"any_of": ["role:finance", "user:cleo"]}
    async with serve(asking("approval"), ANSWER, keys=KEYS, **LISTED) as suite, two_replicas(suite) as (a, b):
        offer(suite, rule)
        async with (
            as_user(a.address, "ada") as ada,
            as_user(b.address, "bob") as bob,
            as_user(a.address, "cleo") as cleo,
            reading_run(ada) as (gate, _, _),
        ):
            with pytest.raises(PermissionDenied):
                await ada.claim_gate(*gate, "tab")
            async with as_user(b.address, "stranger") as stranger:
                for call in (stranger.claim_gate, stranger.release_gate):
                    with pytest.raises(NotFound):
                        await call(*gate, "tab")
            assert (await bob.claim_gate(*gate, "tab")).claimed_by == "bob"
            with pytest.raises(Claimed, match="'bob'"):
                await cleo.claim_gate(*gate, "tab")
            assert await list_claims(cleo) == [("bob", True)]
            assert await try_answer(a.address, "cleo", gate) == "CLAIMED"
            assert await try_answer(b.address, "bob", gate) == "CLAIMED", "another client of bob's"
            assert await bob.release_gate(*gate, "tab")
            assert await try_answer(b.address, "cleo", gate) == ACCEPTED


async def test_a_claim_survives_a_takeover_of_the_run(serve: Serve) -> None:
    async with serve(asking("form"), ANSWER, keys=KEYS, **LISTED) as suite, two_replicas(suite) as (a, b):
        offer(suite, TENANT, "form")
        async with killing_owner(suite, a) as (gate, _), as_user(a.address, "bob") as bob:
            claim = await bob.claim_gate(*gate, "tab", lease_ms=90_000)
        async with as_user(b.address, "bob") as bob:
            with pytest.raises(Claimed):
                await bob.claim_gate(*gate, "another tab")
            assert await bob.claim_gate(*gate, "tab", lease_ms=90_000) == claim, "the claim is unchanged"
            assert await try_answer(b.address, "ada", gate, "1") == "CLAIMED"
            reply = await bob.answer_gate(*gate, "1", holder="tab")
            assert reply.status == "accepted"
        events = await read_as(b.address, "ada", gate[0])
    assert [e["step"] for e in events if e["type"] == "gate.step"] == ["claimed"]
    assert events[-1]["type"] == "run.complete"


async def test_a_release_follows_its_claim_in_the_log(serve: Serve) -> None:
    async with serve(asking("form"), ANSWER, **LISTED) as suite:
        offer(suite, {}, "form")
        claim_arrived, release_arrived = asyncio.Event(), asyncio.Event()

        async def hold_claim(request: memory_pb2.AppendRequest) -> None:
            steps = [line.event.event.gate_step.step for line in request.lines]
            if "claimed" in steps:
                claim_arrived.set()
                with suppress(TimeoutError):
                    await asyncio.wait_for(release_arrived.wait(), 0.5)
            if "released" in steps:
                release_arrived.set()

        async def answer(opened: Event) -> None:
            suite.memory.before = hold_claim
            place = opened["runId"], opened["gateId"]
            async with asyncio.TaskGroup() as group:
                claim = group.create_task(suite.client.claim_gate(*place, "tab"))
                await claim_arrived.wait()
                release = group.create_task(suite.client.release_gate(*place, "tab"))
            assert ((await claim).status, await release) == ("claimed", True)
            assert await list_claims(suite.client) == [("", False)]
            await suite.client.answer_gate(*place, "1")

        events = await ask(suite, ("gate.open", answer))
    assert [e["step"] for e in events if e["type"] == "gate.step"] == ["claimed", "released"]


async def test_an_answerer_may_reject_a_gate_that_another_user_has_claimed(serve: Serve) -> None:
    async with waiting_run(serve, TENANT) as (suite, gate, run):
        async with as_user(suite.address, "bob") as bob:
            await bob.claim_gate(*gate, "tab")
            assert await try_answer(suite.address, "cleo", gate) == "CLAIMED"
            assert await try_answer(suite.address, "cleo", gate, '{"decision": "reject"}') == ACCEPTED
            assert (await bob.answer_gate(*gate, '{"decision": "approve"}', holder="tab")).status != ACCEPTED
        events = await run
    assert [e["by"] for e in events if e["type"] == "approval.answer"] == ["cleo"]
    assert suite.tools.requests == []


async def test_a_vote_on_a_claimed_gate_is_refused(serve: Serve) -> None:
    rule = {"any_of": ["tenant"], "count": 2}
    async with waiting_run(serve, rule) as (suite, gate, run):
        async with as_user(suite.address, "bob") as bob:
            await bob.claim_gate(*gate, "tab")
            assert await try_answer(suite.address, "cleo", gate) == "CLAIMED"
            await bob.release_gate(*gate, "tab")
        assert [await try_answer(suite.address, name, gate) for name in ("cleo", "bob")] == ["voted", ACCEPTED]
        await run
