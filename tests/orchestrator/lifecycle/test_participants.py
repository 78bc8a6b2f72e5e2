"""Runs of a shared_chat chat: colleagues read them, participants ask, and each run acts as the user who asked, at any
replica and whichever process executes it.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from headrace.client import Client
from headrace.errors import ChatBusy, HeadraceError, NotFound, PermissionDenied
from headrace.v1 import agent_pb2, tools_pb2
from tests.support.orchestrator import Serve, Suite, as_json, ask_for, kinds, only, read, tool, two_replicas
from tests.support.orchestrator.answerers import as_member
from tests.support.orchestrator.crashes import Crashes
from tests.support.orchestrator.prices import CALL_USD, answer_at_full_price, write_budget
from tests.support.orchestrator.runs import follow
from tests.support.orchestrator.steps import answer, call_tool, content, finish
from tests.support.order import Event, check_order, texts
from tests.support.waiting import wait_until

KEYS = {
    "ada": "acme/ada",
    "bob": "acme/bob finance",
    "cleo": "acme/cleo",
    "operator": "acme/olga ops operate",
    "stranger": "globex/bob finance",
}
"""Users by key; the chat is ada's."""

ANSWER = answer("All is ", "well.")
APPROVE = '{"decision": "approve"}'
FOR_CHAT = '{"decision": "approve", "grant": "chat", "grantMs": 600000}'
FOUR_EYES = {"any_of": ["tenant"], "not_requester": True}
LISTED = {"toolConfig": {"backends": ["act"]}}
ACT = call_tool("act", '{"at": 1}')
SLOW = [*content("Well "), 1000.0, *finish()]


class FollowedRun:
    """A run that is read while it is running."""

    def __init__(self, client: Client, message: str, chat_id: str | None = None, **fields: Any) -> None:
        self.events: list[Event] = []
        self.begun: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """The run's id; set with the first delta of its answer or with its gate."""
        self.gate_id = ""
        self._client, self._message = client, message
        self._fields: dict[str, Any] = {"chat_id": chat_id, "agent_key": "react"} | fields

    @property
    def chat_id(self) -> str:
        return next(event["chatId"] for event in self.events if event["type"] == "run.start")

    async def follow(self) -> list[Event]:
        try:
            async with self._client.ask(self._message, **self._fields) as deltas:
                async for delta in deltas:
                    self._take(as_json(delta))
        except HeadraceError as error:
            if not self.begun.done():
                self.begun.set_exception(error)
                return self.events
            raise
        if not self.begun.done():
            self.begun.set_result(self.events[-1]["runId"])
        return self.events

    def _take(self, event: Event) -> None:
        self.events.append(event)
        if event["type"] in ("content.delta", "gate.open") and not self.begun.done():
            self.gate_id = event.get("gateId", "")
            self.begun.set_result(next(one["runId"] for one in self.events if one["type"] == "run.start"))


@asynccontextmanager
async def reading_to_end(
    client: Client, message: str, chat_id: str | None = None, **fields: Any
) -> AsyncGenerator[tuple[str, FollowedRun, asyncio.Task[list[Event]]]]:
    """Start a run and yield its id, its state and its task; the block waits until it is read to its end."""
    asking = FollowedRun(client, message, chat_id, **fields)
    async with asyncio.TaskGroup() as group:
        run = group.create_task(asking.follow())
        yield await asking.begun, asking, run


async def ask(client: Client, message: str, chat_id: str | None = None, **fields: Any) -> list[Event]:
    events = await ask_for(client, message, **({"chat_id": chat_id, "agent_key": "react"} | fields))
    check_order(events)
    return events


@asynccontextmanager
async def shared_chat(suite: Suite, *addresses: str) -> AsyncGenerator[tuple[str, list[Client]]]:
    """Share a chat of ada's with bob; yield its id, and for each address a client of ada's and one of bob's."""
    async with AsyncExitStack() as stack:
        pairs = product(addresses or (suite.address,), ("ada", "bob"))
        clients = [await stack.enter_async_context(as_member(suite, *pair)) for pair in pairs]
        chat_id = only(await ask(clients[0], "How is the mill?", agent_key="oneshot"), "run.start")["chatId"]
        await clients[0].share_chat(chat_id, participants=["user:bob"])
        yield chat_id, clients


async def test_participants_ask_and_only_the_user_or_owner_ends_a_run(serve: Serve) -> None:
    async with (
        serve(ANSWER, SLOW, ANSWER, SLOW, keys=KEYS) as suite,
        two_replicas(suite) as (a, b),
        shared_chat(suite, a.address, b.address) as (chat_id, [ada, bob, ada_b, bob_b]),
        as_member(suite, b.address, "cleo") as cleo,
    ):
        await ada.share_chat(chat_id, participants=["user:bob", "user:cleo"])
        async with reading_to_end(bob, "And mine?", chat_id) as (run_id, asking, run):
            assert asking.events[0]["by"] == "bob"
            assert [run.user for run in (await ada_b.chat_runs(chat_id)).runs] == ["ada", "bob"]
            for other in (ada, ada_b, cleo):
                with pytest.raises(PermissionDenied, match="another user's"):
                    await other.steer(run_id, "Stop.")
            with pytest.raises(PermissionDenied, match="another user's"):
                await cleo.cancel(run_id)
            await bob_b.steer(run_id, "Quickly.")
            await ada_b.cancel(run_id)
        assert (await run)[-1]["type"] == "run.cancel"
        async with reading_to_end(ada, "Once more", chat_id) as (run_id, _, _):
            for other in (bob, bob_b):
                with pytest.raises(PermissionDenied):
                    await other.cancel(run_id)
            async with bob_b.attach(run_id) as deltas:
                assert as_json(await anext(aiter(deltas)))["by"] == "ada"
            await ada.cancel(run_id)
        # The steer that no turn took up became a query of the run's own user.
        assert [run.user for run in (await ada.chat_runs(chat_id)).runs] == ["ada", "bob", "bob", "ada"]


REFUSED = {"reject": ChatBusy, "interrupt": PermissionDenied, "rollback": PermissionDenied}


@pytest.mark.parametrize("how", ["enqueue", *REFUSED])
async def test_participants_cannot_end_each_others_runs_by_asking(serve: Serve, how: str) -> None:
    go_on = asyncio.Barrier(2)
    held = [*content("Well "), go_on, *finish()]
    async with (
        serve(ANSWER, held, ANSWER, keys=KEYS) as suite,
        asyncio.TaskGroup() as group,
        shared_chat(suite) as (chat_id, [ada, bob]),
    ):
        async with reading_to_end(ada, "First", chat_id) as (_, _, run):
            second = FollowedRun(bob, "Second", chat_id)
            waiting = None
            if how in REFUSED:
                with pytest.raises(REFUSED[how]):
                    await ask(bob, "Second", chat_id, when_busy=how)
            else:
                waiting = group.create_task(second.follow())
                await wait_until(lambda: second.events)
            await go_on.wait()
        assert (await run)[-1]["type"] == "run.complete"
        if waiting is None:
            return
        assert (await waiting)[-1]["type"] == "run.complete"
        texts = [part.text for message in suite.llm.requests[-1].messages for part in message.content]
        assert [text for text in texts if text.startswith("<speaker")] == [
            '<speaker user="ada"/>\nHow is the mill?',
            '<speaker user="ada"/>\nFirst',
            '<speaker user="bob"/>\nSecond',
        ]


@pytest.mark.parametrize("how", ["reject", "enqueue"])
async def test_a_request_id_used_by_another_user_starts_a_separate_run(serve: Serve, how: str) -> None:
    go_on = asyncio.Barrier(2)
    held = [*content("Well "), go_on, *finish()]
    async with serve(ANSWER, held, ANSWER, keys=KEYS) as suite, shared_chat(suite) as (chat_id, [ada, bob]):
        async with reading_to_end(bob, "Instead", chat_id, request_id="due") as (run_id, _, _):
            adas_run = FollowedRun(ada, "Pay", chat_id, request_id="due", when_busy=how)
            if how == "reject":
                with pytest.raises(ChatBusy):
                    await ask(ada, "Pay", chat_id, request_id="due", when_busy=how)
                await go_on.wait()
            else:
                async with asyncio.TaskGroup() as group:
                    run = group.create_task(adas_run.follow())
                    await wait_until(lambda: adas_run.events)
                    await go_on.wait()
                assert (await run)[0]["by"] == "ada"
        if how == "reject":
            assert (await ask(ada, "Pay", chat_id, request_id="due"))[0]["by"] == "ada"
        repeated = await ask_for(ada, "Pay", chat_id=chat_id, agent_key="react", request_id="due")
        assert repeated[0]["by"] == "ada"
        assert [run.user for run in (await ada.chat_runs(chat_id)).runs] == ["ada", "bob", "ada"]
        assert run_id not in {event["runId"] for event in repeated if event["type"] == "run.start"}


@pytest.mark.parametrize("how", ["interrupt", "rollback"])
async def test_the_owner_may_interrupt_or_roll_back_others_runs(serve: Serve, how: str) -> None:
    async with serve(ANSWER, SLOW, ANSWER, keys=KEYS) as suite, shared_chat(suite) as (chat_id, [ada, bob]):
        async with reading_to_end(bob, "And mine?", chat_id) as (_, _, run):
            assert (await ask(ada, "Mine first", chat_id, when_busy=how))[-1]["type"] == "run.complete"
        assert (await run)[-1]["type"] == "run.cancel"


@pytest.mark.parametrize("is_taken_back", [False, True])
async def test_a_run_keeps_its_user_after_a_takeover(serve: Serve, is_taken_back: bool) -> None:
    async with serve(ANSWER, ACT, ANSWER, keys=KEYS, **LISTED) as suite, two_replicas(suite) as (a, b):
        suite.tools.tools = [tool("act", "backend", approval="ask", answerers=FOUR_EYES)]
        suite.tools.effects = [tools_pb2.CheckEffectResponse(state="not_done")]
        crashes = Crashes(suite)
        async with shared_chat(suite, a.address, b.address) as (chat_id, [_, bob, ada_b, bob_b]):
            asking = FollowedRun(bob, "Act for me", chat_id)
            run = asyncio.create_task(asking.follow())
            run_id = await asking.begun
            crashes.kill(run_id)
            await a.stop()
            with suppress(HeadraceError):
                await run
            if is_taken_back:
                await ada_b.share_chat(chat_id)
            # Four eyes: the requester is the user who asked, not the chat's owner.
            with pytest.raises(PermissionDenied):
                await bob_b.answer_gate(run_id, asking.gate_id, APPROVE)
            assert (await ada_b.gate(run_id, asking.gate_id)).requester == "bob"
            assert (await ada_b.answer_gate(run_id, asking.gate_id, APPROVE)).status == "accepted"
            events = await read(ada_b, run_id)
            assert (events[0]["by"], events[-1]["type"]) == ("bob", "run.complete")
            assert (await ada_b.run(run_id)).user == "bob"
            assert [request.run_id for request in suite.tools.requests] == [run_id]
            async with as_member(suite, b.address, "operator") as operator:
                [row] = [row for row in (await operator.tenant_runs()).runs if row.run_id == run_id]
            assert (row.user, row.chat_owner) == ("bob", "ada")


async def test_unsharing_a_chat_disconnects_readers_but_not_the_run(serve: Serve) -> None:
    go_on = asyncio.Barrier(2)
    held = [*content("Well "), go_on, *finish()]
    async with (
        serve(ANSWER, held, keys=KEYS) as suite,
        two_replicas(suite) as (a, b),
        asyncio.TaskGroup() as group,
        shared_chat(suite, a.address, b.address) as (chat_id, [ada, bob, ada_b, bob_b]),
    ):
        asking = FollowedRun(bob, "And mine?", chat_id)
        own = group.create_task(_expect_not_found(asking.follow()))
        run_id = await asking.begun
        first_event_read = [asyncio.Event(), asyncio.Event()]
        attached = group.create_task(_expect_not_found(follow(bob_b, run_id, first_event_read[0])))
        owners_reader = group.create_task(follow(ada_b, run_id, first_event_read[1]))
        for event in first_event_read:
            await event.wait()
        await ada.share_chat(chat_id)
        await own
        await attached
        for call in (
            ask(bob, "Still?", chat_id),
            bob.run(run_id),
            read(bob, run_id),
            read(bob_b, run_id),
            bob.chat_runs(chat_id),
        ):
            with pytest.raises(NotFound):
                await call
        await go_on.wait()
        assert (await owners_reader)[-1]["type"] == "run.complete"
        assert (await ada.run(run_id)).state == "completed"


async def _expect_not_found(reading: Any) -> None:
    with pytest.raises(NotFound):
        await reading


async def test_a_grant_of_one_user_does_not_cover_another_users_calls(serve: Serve) -> None:
    async with serve(ACT, ANSWER, ACT, ANSWER, ACT, ANSWER, keys=KEYS, **LISTED) as suite:
        suite.tools.tools = [tool("act", "backend", approval="ask", answerers={"any_of": ["tenant"]})]
        async with as_member(suite, suite.address, "ada") as ada, as_member(suite, suite.address, "bob") as bob:
            async with reading_to_end(ada, "Act") as (run_id, first, _):
                granted = await ada.answer_gate(run_id, first.gate_id, FOR_CHAT)
                assert granted.grant_id
            await ada.share_chat(first.chat_id, participants=["user:bob"])
            second_run = await ask(ada, "Act", first.chat_id)
            assert only(second_run, "grant.use")["grantId"] == granted.grant_id
            async with reading_to_end(bob, "Act", first.chat_id) as (run_id, second, run):
                assert second.gate_id, "bob's call opens a gate"
                await ada.answer_gate(run_id, second.gate_id, APPROVE)
            assert kinds(await run, "grant.use") == []


async def test_a_recording_is_readable_only_by_its_user(serve: Serve) -> None:
    async with serve(ANSWER, keys=KEYS) as suite, shared_chat(suite) as (chat_id, [ada, bob]):
        runs = [(await ask(who, "Again", chat_id, record=True))[-1]["runId"] for who in (ada, bob)]
        for who, run_id in zip((ada, bob), runs, strict=True):
            assert await who.cassette(run_id)
        for who, run_id in zip((bob, ada), runs, strict=True):
            with pytest.raises(NotFound):
                await who.cassette(run_id)


async def test_a_run_is_charged_to_the_budget_of_the_user_who_asks(serve: Serve, tmp_path: Path) -> None:
    write_budget(tmp_path, 2 * CALL_USD, user="*", period="day")
    async with serve(keys=KEYS) as suite:
        answer_at_full_price(suite)
        async with shared_chat(suite) as (chat_id, [ada, bob]):
            for who, expected in ((bob, [True, True, False]), (ada, [True, False])):
                for is_within_budget in expected:
                    events = await ask(who, "Again", chat_id, agent_key="oneshot")
                    assert events[-1]["type"] == ("run.complete" if is_within_budget else "run.error"), who
            assert [(await who.usage()).total.cost_nano_usd for who in (ada, bob)] == [80_000_000, 80_000_000]


ANSWER_TEXT = "All is well with the mill."

REFUSALS = ["NOT_FOUND"] * 5 + ["PERMISSION_DENIED", "NOT_FOUND", "PERMISSION_DENIED"]
"""A reader is told that forks and questions are for participants; everything else is the owner's alone."""


async def list_refusals(client: Client, chat_id: str, run_id: str) -> list[str]:
    """Return the reasons with which a reader's changes are refused."""
    reasons: list[str] = []
    for change in (
        client.cancel(run_id),
        client.steer(run_id, "Stop."),
        client.submit(run_id, "1", tool_id="call_1"),
        client.rename_chat(chat_id, "Mine"),
        client.share_chat(chat_id, "tenant"),
        client.fork(chat_id),
        client.delete_chat(chat_id),
        ask_for(client, "And I?", agent_key="oneshot", chat_id=chat_id),
    ):
        try:
            await change
        except HeadraceError as error:
            reasons.append(error.reason)
        else:
            reasons.append("done")
    return reasons


@pytest.mark.parametrize("names", [["role:finance"], ["user:bob"], ["tenant"]])
async def test_a_colleague_follows_a_running_run_at_any_replica(serve: Serve, names: list[str]) -> None:
    go_on = asyncio.Barrier(2)
    turn = [*content("All is ", "well "), go_on, *content("with the mill."), *finish()]
    async with (
        serve(turn, keys=KEYS) as suite,
        two_replicas(suite) as (a, b),
        AsyncExitStack() as stack,
        asyncio.TaskGroup() as group,
    ):
        ada = await stack.enter_async_context(as_member(suite, a.address, "ada"))
        own = FollowedRun(ada, "How is the mill?", agent_key="oneshot")
        whole = group.create_task(own.follow())
        run_id = await own.begun
        chat_id, addresses = own.chat_id, (a.address, b.address)
        for address, name in product(addresses, ("bob", "cleo", "stranger")):
            async with as_member(suite, address, name) as client:
                with pytest.raises(NotFound):
                    await read(client, run_id)
        await ada.share_chat(chat_id, *names)
        readings: list[asyncio.Task[list[Event]]] = []
        for address in addresses:
            bob = await stack.enter_async_context(as_member(suite, address, "bob"))
            first_event_read = asyncio.Event()
            readings.append(group.create_task(follow(bob, run_id, first_event_read)))
            await first_event_read.wait()
            assert (await bob.run(run_id)).state == "running"
            assert [run.run_id for run in (await bob.chat_runs(chat_id)).runs] == [run_id]
            assert await list_refusals(bob, chat_id, run_id) == REFUSALS
            async with as_member(suite, address, "stranger") as stranger:
                with pytest.raises(NotFound):
                    await read(stranger, run_id)
        await go_on.wait()
        events = await whole
        check_order(events)
        for colleagues in [await attached for attached in readings]:
            assert colleagues[-1] == events[-1]
            assert "".join(texts(colleagues, "content")) == "".join(texts(events, "content")) == ANSWER_TEXT


async def test_a_colleague_reads_an_ended_run_until_the_chat_is_unshared(serve: Serve) -> None:
    async with serve(answer(ANSWER_TEXT), keys=KEYS) as suite:
        await suite.ask(agent="oneshot")
        [run_id] = suite.run_ids
        await suite.client.share_chat(suite.chat_id, "user:bob")
        async with as_member(suite, suite.address, "bob") as bob:
            [listed] = (await bob.chats(scope="shared")).chats
            assert (listed.chat_id, listed.owner) == (suite.chat_id, "ada")
            events = await read(bob, run_id)
            ends = [(event["type"], event["seq"]) for event in (events[0], events[-1])]
            assert ends == [("request.query", 1), ("run.complete", 7)]
            assert [run.state for run in (await bob.chat_runs(suite.chat_id)).runs] == ["completed"]
            assert await list_refusals(bob, suite.chat_id, run_id) == REFUSALS
            await suite.client.share_chat(suite.chat_id)
            for call in (read(bob, run_id), bob.run(run_id), bob.chat_runs(suite.chat_id)):
                with pytest.raises(NotFound):
                    await call


async def test_only_the_participant_who_offered_a_function_answers_its_call(serve: Serve) -> None:
    locate = agent_pb2.ClientTool(name="locate")
    async with (
        serve(ANSWER, call_tool("locate", "{}"), ANSWER, keys=KEYS) as suite,
        shared_chat(suite) as (chat_id, users),
    ):
        ada, bob = users
        async with bob.ask("Where?", chat_id=chat_id, agent_key="react", client_tools=[locate]) as deltas:
            async for event in (as_json(delta) async for delta in deltas):
                if event["type"] == "tool.start":
                    with pytest.raises(PermissionDenied, match="it is for requester"):
                        await ada.submit(event["runId"], '"forged"', tool_id=event["toolId"])
                    await bob.submit(event["runId"], '"here"', tool_id=event["toolId"])
        message = suite.llm.requests[-1].messages[-1]
        assert (message.role, message.content[0].text) == ("tool", "here")
