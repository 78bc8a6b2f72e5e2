"""Following a chat gives every event of all its runs once, in order, from any cursor, whatever process dies."""

import asyncio
from collections.abc import Iterator

import pytest

from headrace.client import Client
from headrace.errors import InvalidRequest, NotFound, OutOfRange
from headrace.v1 import agent_pb2
from tests.support.orchestrator import ANSWER, CHAT, Serve, as_json, call_tool, content, finish, two_replicas
from tests.support.orchestrator.crashes import Crashes, restart
from tests.support.orchestrator.events import ask_until, run_of
from tests.support.order import TERMINAL, Event, fold
from tests.support.waiting import wait_until

CALLS = [call_tool("look", '{"at": 1}'), ANSWER]


class Follower:
    """Reads a chat in a task of its own until this number of runs have ended."""

    def __init__(self, client: Client, chat_id: str, *, runs: int, cursor: str = "") -> None:
        self.deltas: list[agent_pb2.FollowDelta] = []
        self._reading = asyncio.create_task(self._read(client, chat_id, runs, cursor))

    async def _read(self, client: Client, chat_id: str, runs: int, cursor: str) -> None:
        async with client.follow_chat(chat_id, cursor) as deltas:
            ended = 0
            while ended < runs:
                self.deltas.append(await anext(deltas))
                ended += self.events[-1]["type"] in TERMINAL

    @property
    def events(self) -> list[Event]:
        return [as_json(delta.delta) for delta in self.deltas]

    async def end(self) -> list[Event]:
        await self._reading
        return self.events


def split_runs(events: list[Event]) -> Iterator[list[Event]]:
    run: list[Event] = []
    for event in events:
        run.append(event)
        if event["type"] in TERMINAL:
            yield run
            run = []


async def test_a_follower_gets_past_and_new_runs_in_order(serve: Serve) -> None:
    async with serve(*CALLS, *CALLS, *CALLS) as suite:
        first = await suite.ask("one")
        follower = Follower(suite.client, suite.chat_id, runs=3)
        second, third = await suite.ask("two"), await suite.ask("three")
        followed = list(split_runs(await follower.end()))
        assert [fold(run) for run in followed] == [fold(run) for run in (first, second, third)]
        assert [delta.run_id for delta in follower.deltas if delta.delta.HasField("run_complete")] == suite.run_ids


async def test_following_from_any_cursor_gives_each_later_event_once(serve: Serve) -> None:
    async with serve(*CALLS, *CALLS) as suite:
        await suite.ask("one")
        follower = Follower(suite.client, suite.chat_id, runs=2)
        await suite.ask("two")
        whole = await follower.end()
        for index, delta in enumerate(follower.deltas[:-1]):
            runs_left = 2 - sum(event["type"] in TERMINAL for event in whole[: index + 1])
            later_events = await Follower(suite.client, suite.chat_id, runs=runs_left, cursor=delta.cursor).end()
            runs_again = list(split_runs([*whole[: index + 1], *later_events]))
            assert [fold(run) for run in runs_again] == [fold(run) for run in split_runs(whole)]


async def test_a_live_run_is_followed_from_the_cursor_of_the_history(serve: Serve) -> None:
    async with serve(ANSWER, [*content("Hel"), 0.2, *content("lo"), *finish()]) as suite:
        await suite.ask("one")
        events_before = await ask_until(suite.client, "content.delta", agent_key="react", chat_id=suite.chat_id)
        history = await suite.client.chat(suite.chat_id)
        follower = Follower(suite.client, suite.chat_id, runs=1, cursor=history.cursor)
        whole = [*map(as_json, history.events), *await follower.end()]
        runs = list(split_runs(whole))
        assert run_of(runs[1]) == run_of(events_before)
        assert [block["text"] for block in fold(runs[1])["blocks"].values()] == ["Hello"]


async def test_a_follower_at_another_replica_gets_the_owners_runs(serve: Serve) -> None:
    async with serve(ANSWER, ANSWER) as suite, two_replicas(suite) as (a, b):
        first = await ask_until(a.client, "run.complete", agent_key="react", chat_id=CHAT)
        follower = Follower(b.client, CHAT, runs=2)
        second = await ask_until(a.client, "run.complete", agent_key="react", chat_id=CHAT)
        assert list(map(fold, split_runs(await follower.end()))) == [fold(first), fold(second)]


async def test_a_run_is_followed_to_its_end_after_its_owner_dies(serve: Serve) -> None:
    async with serve(ANSWER, [*content("Hel"), 3600.0], ANSWER, ANSWER) as suite:
        crashes = Crashes(suite)
        await suite.ask("one")
        follower = Follower(suite.client, suite.chat_id, runs=2)
        events_before = await ask_until(suite.client, "content.delta", agent_key="react", chat_id=suite.chat_id)
        await wait_until(lambda: any(event["type"] == "content.delta" for event in follower.events[5:]))
        crashes.kill(run_of(events_before))
        await suite.stop()
        async with restart(suite) as client:
            cursor = follower.deltas[-1].cursor
            later_events = await Follower(client, suite.chat_id, runs=1, cursor=cursor).end()
            runs = list(split_runs([*follower.events, *later_events]))
            seqs = [event["seq"] for event in runs[1]]
            assert seqs == sorted(set(seqs))
            assert runs[1][-1]["type"] == "run.complete"


@pytest.mark.parametrize("cursor", ["x", "1", "1.-2", "1.2.3", "١.٢", f"{10**18}.1"])
async def test_an_invalid_cursor_is_refused(serve: Serve, cursor: str) -> None:
    async with serve(ANSWER) as suite:
        await suite.ask()
        with pytest.raises(InvalidRequest, match="cursor: must be of an event of this chat"):
            await Follower(suite.client, suite.chat_id, runs=1, cursor=cursor).end()


async def test_a_cursor_beyond_what_its_run_has_sent_is_refused(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        await suite.ask()
        with pytest.raises(OutOfRange, match="beyond the run's last event"):
            await Follower(suite.client, suite.chat_id, runs=1, cursor="1.99").end()


async def test_a_cursor_beyond_the_chats_last_line_is_refused(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        await suite.ask()
        with pytest.raises(OutOfRange, match="beyond the chat's last line"):
            await Follower(suite.client, suite.chat_id, runs=1, cursor="1000.1").end()


async def test_following_an_unknown_chat_is_not_found(serve: Serve) -> None:
    async with serve() as suite:
        with pytest.raises(NotFound, match=f"chat {CHAT} does not exist"):
            await Follower(suite.client, CHAT, runs=1).end()


@pytest.mark.parametrize(("kind", "messages"), [("query", ["one", "three"]), ("step", ["one", "two", "three"])])
async def test_a_follower_gets_the_runs_that_a_revert_has_kept(serve: Serve, kind: str, messages: list[str]) -> None:
    async with serve(ANSWER, ANSWER, ANSWER) as suite:
        await suite.ask("one")
        await suite.ask("two")
        latest = (await suite.client.checkpoints(suite.chat_id, kind=kind)).checkpoints[0]
        await suite.client.revert(suite.chat_id, latest.checkpoint_id)
        await suite.ask("three")
        followed = await Follower(suite.client, suite.chat_id, runs=2).end()
        history = (await suite.client.chat(suite.chat_id)).events
        assert followed == [as_json(event) for event in history]
        assert [event["message"] for event in followed if event["type"] == "request.query"] == messages
