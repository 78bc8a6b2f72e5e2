"""Mode REMOTE: an agent elsewhere, here a scripted one, answers; whatever it does, the run ends honestly."""

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from headrace.a2a import a2a_pb2
from headrace.errors import HeadraceError
from headrace.event_json import parse_event
from headrace.runs.fold import Fold
from services.orchestrator.peers.remote.client import read_json
from tests.support.orchestrator import Serve, Suite, as_json, cancels, kinds, only, people, results, run_of, submit
from tests.support.orchestrator.crashes import Crashes, read_rest, restart, run_until
from tests.support.orchestrator.scripted_remote import (
    CUT,
    DONE,
    ScriptedRemote,
    Step,
    artifact,
    scripted_remote,
    status,
)
from tests.support.orchestrator.steps import answer, call_tool
from tests.support.order import TERMINAL, Event, check_order, texts
from tests.support.tiers import Take, at_places
from tests.support.waiting import wait_until


def describe(remote: ScriptedRemote, **section: Any) -> dict[str, Any]:
    """An agent that is elsewhere."""
    budget = section.pop("budget", {})
    return {"mode": "REMOTE", "name": "Far", "budget": budget, "remote": {"card": f"{remote.url}/card"} | section}


@asynccontextmanager
async def far_agent(
    serve: Serve, *plays: list[Step], turns: Iterable[list[Any]] = (), **section: Any
) -> AsyncGenerator[tuple[Suite, ScriptedRemote]]:
    """A suite with the agent `far`, which is elsewhere and plays these steps, and which `react` may call."""
    async with scripted_remote() as remote:
        remote.plays = [*plays] or remote.plays
        async with serve(*turns, subagents=["far"], beside={"far": describe(remote, **section)}) as suite:
            yield suite, remote


def read_said(remote: ScriptedRemote) -> list[str]:
    """What the agent was told, message by message."""
    return [message["parts"][0]["text"] for message in remote.messages]


def read_answer(events: list[Event]) -> str:
    fold = Fold()
    for event in events:
        fold.apply(parse_event(json.dumps(event).encode()))
    return fold.answer


def read_reason(events: list[Event]) -> str:
    assert events[-1]["type"] == "run.error", events[-1]
    return events[-1]["error"]["code"]


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.parametrize("streaming", [True, False])
async def test_an_answer_is_forwarded_as_it_comes(serve: Serve, binding: str, streaming: bool) -> None:
    async with (
        scripted_remote(binding, streaming=streaming) as remote,
        serve(beside={"far": describe(remote)}) as suite,
    ):
        events = await suite.ask("hello", "far")
    expected = ["one ", "two ", "three"] if streaming else ["one two three"]
    assert texts(events, "content") == expected
    assert events[-1]["type"] == "run.complete"
    assert events[-1]["finishReason"] == "stop"
    assert remote.messages[0]["parts"] == [{"text": "hello"}]
    assert [header["A2A-Version"] for header in remote.headers] == ["1.0"] * len(remote.headers)


async def ask(suite: Suite, message: str = "hello", agent: str = "far", /, **answers: Any) -> list[Event]:
    """A whole run; each gate that opens is answered by what `answers` has for the question's first word, in turn."""
    events: list[Event] = []
    left = {word: [*given] if isinstance(given, list) else [given] for word, given in answers.items()}
    asked: dict[str, str] = {}
    async with (
        asyncio.TaskGroup() as group,
        suite.client.ask(message, agent_key=agent, chat_id=suite.chat_id) as deltas,
    ):
        async for delta in deltas:
            event = as_json(delta)
            events.append(event)
            if event["type"] == "tool.end":
                asked[event["toolId"]] = event["toolParams"].get("question", "")
            if event["type"] == "gate.open":
                word = asked[event["gateId"]].split()[0].lower().rstrip("?:")
                given = left[word].pop(0)
                group.create_task(submit(suite, run_of(events), event["gateId"], given))
    check_order(events)
    suite.chat_id = next(event["chatId"] for event in events if event["type"] == "run.start")
    return events


DELEGATE = call_tool("call_subagent", json.dumps({"agentKey": "far", "task": "look it up"}))


async def test_a_chat_goes_on_in_the_same_context_and_a_sub_agent_begins_one(serve: Serve) -> None:
    async with far_agent(serve, turns=[DELEGATE, answer("done")]) as (suite, remote):
        await suite.ask("first", "far")
        await suite.ask("second", "far")
        events = await suite.ask("third", "react")
    contexts = [message.get("contextId") for message in remote.messages]
    assert contexts[0] is None
    assert contexts[1:] == [next(iter(remote.tasks.values())).context_id, None]
    assert read_said(remote) == ["first", "second", "look it up"]
    assert texts([event for event in events if "subagentId" in event], "content") == ["one ", "two ", "three"]
    assert json.loads(only(events, "tool.result")["result"])["result"] == "one two three"


async def test_a_conversation_that_is_not_known_any_more_is_begun_anew(serve: Serve) -> None:
    async with far_agent(serve) as (suite, remote):
        await suite.ask("first", "far")
        remote.knows_contexts = False
        assert read_answer(await suite.ask("second", "far")) == "one two three"
        remote.knows_contexts = True
        await suite.ask("third", "far")
    first, second = (
        task.context_id for task in remote.tasks.values() if task.history[0]["parts"][0]["text"] != "third"
    )
    assert [message.get("contextId") for message in remote.messages] == [None, first, None, second]


WHICH = status("INPUT_REQUIRED", "Which city?", id="q1")


async def test_a_run_that_waits_is_cancelled_there_by_whoever_has_it(serve: Serve) -> None:
    async with far_agent(serve, [WHICH]) as (suite, remote):
        seen = await run_until(suite, "gate.open", agent_key="far")
        async with restart(suite) as client:
            await client.cancel(run_of(seen))
            assert (await read_rest(client, seen))[-1]["type"] == "run.cancel"
            await asyncio.wait_for(remote.canceled.wait(), 60)


async def test_what_it_asks_our_user_is_asked_and_the_answer_goes_to_the_same_task(serve: Serve) -> None:
    sign_in = status("AUTH_REQUIRED", "Sign in at https://sso")
    plays: list[list[Step]] = [["I need ", "to know. ", WHICH], [sign_in], ["It rains.", DONE]]
    async with far_agent(serve, *plays) as (suite, remote):
        events = await ask(suite, which="Rome", far={"answer": "done"})
    assert read_said(remote) == ["hello", "Rome", "done"]
    [task] = remote.tasks.values()
    assert [message.get("taskId") for message in remote.messages] == [None, task.id, task.id]
    assert kinds(events, "gate.") == ["gate.open", "gate.close"] * 2
    assert texts(events, "content") == ["I need ", "to know. ", "It rains."]
    assert events[-1]["type"] == "run.complete"
    questions = [event["toolParams"]["question"] for event in events if event["type"] == "tool.end"]
    assert questions[0] == "Which city?"
    assert questions[1].startswith("Far needs an authorization")
    assert questions[1].endswith("Sign in at https://sso")


async def test_a_sub_agent_elsewhere_asks_the_user_and_its_failure_is_a_value(serve: Serve) -> None:
    plays: list[list[Step]] = [[WHICH], [status("FAILED", "no such city")]]
    async with far_agent(serve, *plays, turns=[DELEGATE, answer("I could not.")]) as (suite, remote):
        events = await ask(suite, "hello", "react", which="Atlantis")
    assert read_said(remote) == ["look it up", "Atlantis"]
    failure = json.loads(results(events)[-1][0])
    assert (failure["ok"], failure["error"]) == (False, "REMOTE_FAILED")
    assert failure["message"].endswith("no such city")
    assert read_answer(events) == "I could not."


async def test_a_question_that_nobody_answers_ends_the_task_there_and_the_run_here(serve: Serve) -> None:
    async with far_agent(serve, [WHICH], questionTimeoutMs=50) as (suite, remote):
        assert read_reason(await suite.ask("hello", "far")) == "REMOTE_FAILED"
        await asyncio.wait_for(remote.canceled.wait(), 60)


@pytest.mark.parametrize(
    ("end", "reason", "words"),
    [
        (status("FAILED", "out of\nmilk"), "REMOTE_FAILED", "failed: out of milk"),
        (status("REJECTED", "not my job"), "REMOTE_REJECTED", "rejects the task: not my job"),
        (status("CANCELED"), "REMOTE_FAILED", "was cancelled there: it does not say why"),
        (DONE, "NO_ANSWER", "ended without an answer"),
    ],
)
async def test_an_end_without_an_answer_is_an_error_with_its_words(
    serve: Serve, end: dict[str, Any], reason: str, words: str
) -> None:
    async with far_agent(serve, [end]) as (suite, remote):
        events = await suite.ask("hello", "far")
    assert read_reason(events) == reason
    assert words in events[-1]["error"]["message"]
    assert "CancelTask" not in remote.calls


async def test_remarks_on_the_way_are_reasoning_and_a_last_word_is_the_answer(serve: Serve) -> None:
    said = status("WORKING", "Looking it up", id="m1")
    async with far_agent(serve, [said, said, status("COMPLETED", "It rains.")]) as (suite, _):
        events = await suite.ask("hello", "far")
    assert texts(events, "reasoning") == ["Looking it up\n"]
    assert texts(events, "content") == ["It rains."]


async def test_an_agent_may_answer_with_a_message_and_no_task(serve: Serve) -> None:
    message = {"messageId": "m", "role": "ROLE_AGENT", "contextId": "c", "parts": [{"text": "It rains."}]}
    async with far_agent(serve) as (suite, remote):
        remote.replies = [{"message": message}]
        assert texts(await suite.ask("hello", "far"), "content") == ["It rains."]
        await suite.ask("again", "far")
    assert remote.messages[1]["contextId"] == "c"


async def test_what_is_taken_back_is_taken_back_here(serve: Serve) -> None:
    form = artifact("", name="form", parts=[{"data": {"n": 3, "x": [1.5]}}])
    async with far_agent(serve, ["Let me see", artifact("It rains."), form, DONE]) as (suite, _):
        events = await suite.ask("hello", "far")
    assert only(events, "attempt.reset")["reason"] == "REMOTE_REPLACED"
    assert read_answer(events) == 'It rains.\n\n{"n":3,"x":[1.5]}'


async def test_what_stood_before_a_question_may_be_all_that_there_is(serve: Serve) -> None:
    async with far_agent(serve, ["It rains. ", WHICH], [DONE]) as (suite, _):
        assert read_answer(await ask(suite, which="Rome")) == "It rains. "


@pytest.mark.parametrize("tells_first", [True, False])
async def test_a_stream_that_breaks_in_mid_answer_is_followed_anew(serve: Serve, tells_first: bool) -> None:
    async with far_agent(serve, ["one ", CUT, 0.3, "two ", "three", DONE]) as (suite, remote):
        remote.tells_first = tells_first
        events = await suite.ask("hello", "far")
    assert read_answer(events) == "one two three"
    assert kinds(events, "attempt") == []
    assert len(remote.messages) == 1
    assert "SubscribeToTask" in remote.calls


async def test_silence_has_the_task_looked_at(serve: Serve) -> None:
    async with far_agent(serve, ["one ", 1.0, "two", DONE], silenceTimeoutMs=200) as (suite, remote):
        assert read_answer(await suite.ask("hello", "far")) == "one two"
    assert len(remote.messages) == 1
    assert remote.calls.count("SubscribeToTask") >= 2


async def test_who_takes_the_message_and_says_nothing_has_a_person_asked(serve: Serve) -> None:
    async with far_agent(serve, requestTimeoutMs=300) as (suite, remote):
        remote.hold = held = asyncio.Event()
        assert read_reason(await ask(suite, it="leave it")) == "REMOTE_OUTCOME_UNKNOWN"
        assert len(remote.messages) == 1

        async def free() -> None:
            await wait_until(lambda: len(remote.messages) >= 3)
            held.set()

        freeing = asyncio.create_task(free())
        events = await ask(suite, it=["send it again"])
        await freeing
    assert read_answer(events) == "one two three"
    assert only(events, "run.notice")["code"] == "OUTCOME_UNKNOWN"


async def test_a_message_that_is_known_by_its_id_is_sent_again_and_had_once(serve: Serve) -> None:
    async with far_agent(serve, effect="idempotent") as (suite, remote):
        remote.knows_ids, remote.drops = True, 2
        events = await suite.ask("hello", "far")
    assert read_answer(events) == "one two three"
    assert len({message["messageId"] for message in remote.messages}) == 1
    assert len(remote.tasks) == 1


@pytest.mark.parametrize(("drops", "loses"), [(1, 0), (0, 1)], ids=["found", "sent again"])
async def test_an_answer_to_a_question_that_was_lost_is_found_or_sent_again(
    serve: Serve, drops: int, loses: int
) -> None:
    async with far_agent(serve, [WHICH], ["It rains in ", "Rome.", DONE]) as (suite, remote):

        async def lose() -> None:
            await wait_until(lambda: remote.tasks)
            remote.drops, remote.loses = drops, loses

        losing = asyncio.create_task(lose())
        events = await ask(suite, which="Rome")
        await losing
    assert read_answer(events) == "It rains in Rome."
    assert read_said(remote) == ["hello", "Rome"]


@pytest.mark.parametrize(
    "fields",
    [
        b'"status":{"state":"TASK_STATE_COMPLETED","timestamp":"2026-11-26T05:00:00.123456"}',
        b'"status":{"state":"TASK_STATE_COMPLETED","timestamp":"2026-11-26 05:00:00"}',
        b'"status":{"state":"TASK_STATE_COMPLETED","timestamp":1795669200000}',
        b'"status":{"state":"TASK_STATE_COMPLETED"},"metadata":[]',
        b'"status":{"state":"TASK_STATE_COMPLETED"},"metadata":"none"',
    ],
)
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
async def test_what_is_not_read_may_deviate(serve: Serve, fields: bytes, mark: bytes) -> None:
    task = b'{"id":"t","contextId":"c","artifacts":[{"artifactId":"a","parts":[{"text":"It rains."}]}],%b}' % fields
    async with far_agent(serve) as (suite, remote):
        remote.replies = [mark + b'{"jsonrpc":"2.0","id":"1","result":{"task":%b}}' % task]
        assert read_answer(await suite.ask("hello", "far")) == "It rains."


async def test_half_an_emoji_is_replaced(serve: Serve) -> None:
    message = rb'{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"\\ud83e \ud83e\udd16 \ud83e"}]}'
    async with far_agent(serve) as (suite, remote):
        remote.replies = [b'{"jsonrpc":"2.0","id":"1","result":{"message":%b}}' % message]
        assert read_answer(await suite.ask("hello", "far")) == "\\ud83e \U0001f916 \ufffd"


def test_questions_are_told_apart_by_times_without_a_zone() -> None:
    times = []
    for time in ("2026-11-26T05:00:00", "2026-11-26T05:00:01.5", "2026-11-26T05:00:00Z"):
        data = b'{"state":"TASK_STATE_INPUT_REQUIRED","timestamp":"%b"}' % time.encode()
        times.append(read_json(data, a2a_pb2.TaskStatus, "far").timestamp.ToJsonString())
    assert times == ["2026-11-26T05:00:00Z", "2026-11-26T05:00:01.500Z", "2026-11-26T05:00:00Z"]


@pytest.mark.parametrize(
    "fields",
    [
        {"version": 1.0},
        {"securitySchemes": [], "provider": "me"},
        {"capabilities": []},
        {"skills": [{"id": "s", "name": "s", "tags": None, "examples": [{"question": "why"}]}]},
    ],
)
async def test_what_is_not_read_of_a_card_may_deviate(serve: Serve, fields: dict[str, Any]) -> None:
    async with far_agent(serve) as (suite, remote):
        remote.card |= fields
        assert read_answer(await suite.ask("hello", "far")) == "one two three"


BAD = "REMOTE_BAD_ANSWER"


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([b"data: nonsense\n\n"], BAD),
        ([b'data: {"jsonrpc":"2.0","id":"1","result":{"task":{"id":7,"status":[]}}}\n\n'], BAD),
        ([b'data: {"jsonrpc":"2.0","id":"1","result":{}}\n\n'], BAD),
        ([b'data: {"jsonrpc":"2.0","id":"1"}\n\n'], BAD),
        ([b'data: {"jsonrpc":"2.0","id":"1","result":' + b'{"task":' * 300 + b"}" * 301 + b"\n\n"], BAD),
        ([b"data: " + b"x" * 300_000], BAD),
        (["x" * 900] * 200, BAD),
        ([b'data: {"jsonrpc":"2.0","id":"1","error":{"code":-32602,"message":"no"}}\n\n'], "REMOTE_FAILED"),
        ([b'data: {"jsonrpc":"2.0","id":"1","result":{"task":{"id":"other"}}}\n\n'], BAD),
    ],
)
async def test_nonsense_ends_the_run_and_is_cancelled(serve: Serve, steps: list[Step], reason: str) -> None:
    async with far_agent(serve, ["one ", *steps, 3600.0], maxAnswerBytes=100_000) as (suite, remote):
        assert read_reason(await suite.ask("hello", "far")) == reason
        await asyncio.wait_for(remote.canceled.wait(), 60)


async def test_a_cancel_is_a_cancel_there_and_does_not_wait_for_it(serve: Serve) -> None:
    async with far_agent(serve, ["one ", 3600.0]) as (suite, remote):
        events = await people.ask(suite, ("content.delta", cancels(suite)), agent_key="far")
        assert events[-1]["type"] == "run.cancel"
        await asyncio.wait_for(remote.canceled.wait(), 60)
    assert remote.calls.count("CancelTask") == 1


async def test_the_runs_time_ends_the_task_there(serve: Serve) -> None:
    async with far_agent(serve, ["one ", 3600.0], budget={"timeoutMs": 500}) as (suite, remote):
        assert read_reason(await suite.ask("hello", "far")) == "BUDGET_EXCEEDED"
        await asyncio.wait_for(remote.canceled.wait(), 60)


async def test_credentials_are_looked_up_and_shown_to_the_cards_host_alone(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAR_TOKEN", "s3cret-token")
    (tmp_path / "key").write_text("k3y\n")
    async with scripted_remote() as remote, scripted_remote() as other:
        remote.token = "s3cret-token"
        headers = {"X-Api-Key": f"file:{tmp_path / 'key'}", "X-Team": "blue"}
        agents = {
            "far": describe(remote, token="env:FAR_TOKEN", headers=headers),
            "wrong": describe(remote, headers={"X-Team": "blue"}),
            "unset": describe(remote, token="env:NOT_SET"),
            "elsewhere": describe(other, token="env:FAR_TOKEN"),
        }
        other.card["supportedInterfaces"][0]["url"] = remote.url.replace("127.0.0.1", "localhost") + "/rpc"
        async with serve(beside=agents) as suite:
            assert read_answer(await suite.ask("hello", "far")) == "one two three"
            shown = [(one.get("Authorization"), one.get("X-Api-Key"), one.get("X-Team")) for one in remote.headers]
            assert shown == [("Bearer s3cret-token", "k3y", "blue")] * 2
            assert read_reason(await suite.ask("hello", "wrong")) == "REMOTE_AUTHENTICATION"
            assert read_reason(await suite.ask("hello", "unset")) == "REMOTE_AUTHENTICATION"
            before = len(remote.headers)
            assert read_reason(await suite.ask("hello", "elsewhere")) == "REMOTE_NOT_ALLOWED"
            assert len(remote.headers) == before


async def test_only_what_is_named_or_opened_is_reached(serve: Serve) -> None:
    async with scripted_remote() as remote, scripted_remote() as other:
        served = {"url": f"{remote.url}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        named = remote.url.replace("127.0.0.1", "localhost")
        other.card["supportedInterfaces"] = [served | {"url": f"{named}/rpc"}, served]
        agents = {
            "named": describe(remote, hosts=["localhost"]),
            "closed": describe(remote, card=f"{named}/card"),
            "plain": describe(remote, card="http://example.com/card"),
            "metadata": describe(remote, card="https://169.254.169.254/card"),
            "nobody": describe(remote, card="http://127.0.0.1:9/card"),
            "none": describe(remote, card=f"{remote.url}/missing"),
        }
        async with serve(beside=agents) as suite:
            assert read_answer(await suite.ask("hello", "named")) == "one two three"
            for agent in ("closed", "plain", "metadata"):
                assert read_reason(await suite.ask("hello", agent)) == "REMOTE_NOT_ALLOWED", agent
            for agent in ("nobody", "none"):
                assert read_reason(await suite.ask("hello", agent)) == "REMOTE_UNAVAILABLE", agent


@pytest.mark.parametrize("path", ["/card", "/rpc"])
async def test_redirects_are_not_followed(serve: Serve, path: str) -> None:
    async with scripted_remote() as other, far_agent(serve) as (suite, remote):
        remote.redirects[path] = other.url + path
        assert read_reason(await suite.ask("hello", "far")) == "REMOTE_NOT_ALLOWED"
    assert not other.headers


def serve_at(url: str, binding: str = "JSONRPC", version: str = "1.0") -> dict[str, Any]:
    return {"supportedInterfaces": [{"url": url, "protocolBinding": binding, "protocolVersion": version}]}


@pytest.mark.parametrize(
    ("card", "reason"),
    [
        ({"name": "x"}, BAD),
        (["x"], BAD),
        ({"supportedInterfaces": "x"}, BAD),
        (serve_at("x", "GRPC"), BAD),
        (serve_at("x", version="0.3"), BAD),
        (serve_at("x"), "REMOTE_NOT_ALLOWED"),
        (serve_at("file:///etc"), "REMOTE_NOT_ALLOWED"),
        ({"name": "x" * 400_000}, BAD),
    ],
)
async def test_a_card_that_is_none_is_named(serve: Serve, card: Any, reason: str) -> None:
    async with far_agent(serve) as (suite, remote):
        remote.card = card
        assert read_reason(await suite.ask("hello", "far")) == reason
    assert not remote.messages


async def test_what_it_costs_is_estimated_and_bounded(serve: Serve) -> None:
    async with scripted_remote() as remote:
        remote.plays = [["x" * 3000, DONE]]
        dear = describe(remote, budget={"maxCostUsd": 100})
        priced = describe(remote, price={"outputPerMTok": 1000}, budget={"maxCostUsd": 100})
        async with serve(beside={"priced": priced, "dear": dear}) as suite:
            events = await suite.ask("hello", "priced")
            assert read_reason(await suite.ask("hello", "dear")) == "PRICE_UNKNOWN"
    usage = events[-1]["usage"]
    assert (usage["modelCalls"], usage["inputTokens"], usage["outputTokens"]) == (1, 2, 1000)
    assert usage["costUsd"] == pytest.approx(1.0)
    assert usage["estimated"]
    assert len(remote.messages) == 1


@at_places
@pytest.mark.parametrize("effect", ["once", "idempotent"])
async def test_whoever_takes_a_run_over_sends_nothing_twice(serve: Serve, effect: str, take: Take) -> None:
    async with far_agent(serve, effect=effect) as (suite, remote):
        remote.knows_ids = effect == "idempotent"
        await suite.stop()
        crashes = Crashes(suite)
        alone = await run_on(suite, remote, crashes)
        assert read_answer(alone) == "It rains in Rome."
        appends = crashes.appends[run_of(alone)]
        assert appends > 6
        in_doubt: list[int] = []
        for append in sorted({2, *take(range(1, appends), effect)}):
            whole = await run_on(suite, remote, crashes, append=append)
            assert len(remote.tasks) == 1, append
            if effect == "once" and whole[-1]["type"] == "run.error":
                # A message that is on its way when its sender dies: nobody knows, so a person was asked.
                assert read_reason(whole) == "REMOTE_OUTCOME_UNKNOWN"
                assert len(remote.messages) == 1
                in_doubt.append(append)
                continue
            assert whole[-1]["type"] == "run.complete", append
            assert read_answer(whole) == "It rains in Rome.", append
            said = {message["messageId"]: message["parts"][0]["text"] for message in remote.messages}
            assert [*said.values()] == ["hello", "Rome"], append
            assert effect == "idempotent" or len(remote.messages) == 2, append
        assert in_doubt == ([2] if effect == "once" else [])


@at_places
async def test_whoever_takes_over_at_any_event_follows_the_same_task(serve: Serve, take: Take) -> None:
    async with far_agent(serve) as (suite, remote):
        await suite.stop()
        crashes = Crashes(suite)
        alone = await run_on(suite, remote, crashes)
        for event in take(range(5, len(alone)), "events"):
            whole = await run_on(suite, remote, crashes, event=event)
            if whole[-1]["type"] == "run.error":
                assert read_reason(whole) == "REMOTE_OUTCOME_UNKNOWN"
                assert len(remote.messages) == 1, event
                continue
            assert read_answer(whole) == "It rains in Rome.", event
            assert read_said(remote) == ["hello", "Rome"], event
            assert len(remote.tasks) == 1, event


async def run_on(
    suite: Suite, remote: ScriptedRemote, crashes: Crashes, *, append: int = 0, event: int = 0
) -> list[Event]:
    """A run in a chat of its own, by one process or by two, the first of which dies at an append, or once its reader
    has so many events; its gates are answered."""
    remote.plays = [["Let me ", 0.05, "ask. ", WHICH], ["It rains ", 0.1, "in ", "Rome.", DONE]]
    remote.messages.clear()
    remote.tasks.clear()
    crashes.kill_at(append or -1)
    seen: list[Event] = []
    async with restart(suite) as client, client.ask("hello", agent_key="far", chat_id=str(uuid.uuid4())) as deltas:
        await follow(suite, seen, deltas, event)
        if event:
            crashes.kill(run_of(seen))
    crashes.kill_at(-1)
    if append or event:
        assert seen[-1]["type"] not in TERMINAL
        async with restart(suite) as client, client.attach(run_of(seen), seen[-1]["seq"]) as deltas:
            await follow(suite, seen, deltas)
    return seen


async def follow(suite: Suite, seen: list[Event], deltas: Any, until: int = 0) -> None:
    answered = {event["gateId"] for event in seen if event["type"] == "gate.close"}
    for event in [*seen]:
        await answer_gate(suite, seen, event, answered)
    async for delta in deltas:
        seen.append(as_json(delta))
        await answer_gate(suite, seen, seen[-1], answered)
        if len(seen) == until:
            return


async def answer_gate(suite: Suite, seen: list[Event], gate: Event, answered: set[str]) -> None:
    """Answer the gate if this is one's opening, and nobody has."""
    if gate["type"] != "gate.open" or gate["gateId"] in answered:
        return
    answered.add(gate["gateId"])
    asked = [event for event in seen if event.get("toolId") == gate["toolId"]]  # or a snapshot, to who comes later
    is_doubt = "sent again" in json.dumps(asked)
    with suppress(HeadraceError):
        await submit(suite, run_of(seen), gate["gateId"], "leave it" if is_doubt else "Rome")
