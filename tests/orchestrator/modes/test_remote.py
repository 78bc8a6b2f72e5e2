"""Mode REMOTE: a remote agent, here a scripted one, answers; whatever it does, the run ends correctly."""

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
    """Return the definition of an agent that runs at this remote."""
    budget = section.pop("budget", {})
    return {"mode": "REMOTE", "name": "Far", "budget": budget, "remote": {"card": f"{remote.url}/card"} | section}


@asynccontextmanager
async def serve_far_agent(
    serve: Serve, *plays: list[Step], turns: Iterable[list[Any]] = (), **section: Any
) -> AsyncGenerator[tuple[Suite, ScriptedRemote]]:
    """A suite with the remote agent `far`, which plays these steps and which `react` may call."""
    async with scripted_remote() as remote:
        remote.plays = [*plays] or remote.plays
        async with serve(*turns, subagents=["far"], beside={"far": describe(remote, **section)}) as suite:
            yield suite, remote


def read_messages(remote: ScriptedRemote) -> list[str]:
    """Return the text of each message that the remote agent got."""
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
async def test_deltas_of_a_remote_answer_are_forwarded_at_once(serve: Serve, binding: str, streaming: bool) -> None:
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
    """Run a query; answer each gate with the next of `answers` for the first word of its question."""
    events: list[Event] = []
    answers_left = {
        word: [*next_answer] if isinstance(next_answer, list) else [next_answer]
        for word, next_answer in answers.items()
    }
    questions: dict[str, str] = {}
    async with (
        asyncio.TaskGroup() as group,
        suite.client.ask(message, agent_key=agent, chat_id=suite.chat_id) as deltas,
    ):
        async for delta in deltas:
            event = as_json(delta)
            events.append(event)
            if event["type"] == "tool.end":
                questions[event["toolId"]] = event["toolParams"].get("question", "")
            if event["type"] == "gate.open":
                word = questions[event["gateId"]].split()[0].lower().rstrip("?:")
                next_answer = answers_left[word].pop(0)
                group.create_task(submit(suite, run_of(events), event["gateId"], next_answer))
    check_order(events)
    suite.chat_id = next(event["chatId"] for event in events if event["type"] == "run.start")
    return events


DELEGATE = call_tool("call_subagent", json.dumps({"agentKey": "far", "task": "look it up"}))


async def test_a_chat_continues_its_remote_context_and_a_sub_agent_starts_a_new_one(serve: Serve) -> None:
    async with serve_far_agent(serve, turns=[DELEGATE, answer("done")]) as (suite, remote):
        await suite.ask("first", "far")
        await suite.ask("second", "far")
        events = await suite.ask("third", "react")
    contexts = [message.get("contextId") for message in remote.messages]
    assert contexts[0] is None
    assert contexts[1:] == [next(iter(remote.tasks.values())).context_id, None]
    assert read_messages(remote) == ["first", "second", "look it up"]
    assert texts([event for event in events if "subagentId" in event], "content") == ["one ", "two ", "three"]
    assert json.loads(only(events, "tool.result")["result"])["result"] == "one two three"


async def test_a_context_the_remote_no_longer_knows_is_started_anew(serve: Serve) -> None:
    async with serve_far_agent(serve) as (suite, remote):
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


async def test_cancelling_a_waiting_run_after_a_takeover_cancels_the_remote_task(serve: Serve) -> None:
    async with serve_far_agent(serve, [WHICH]) as (suite, remote):
        events_before = await run_until(suite, "gate.open", agent_key="far")
        async with restart(suite) as client:
            await client.cancel(run_of(events_before))
            assert (await read_rest(client, events_before))[-1]["type"] == "run.cancel"
            await asyncio.wait_for(remote.canceled.wait(), 60)


async def test_a_remote_question_is_asked_and_its_answer_goes_to_the_same_task(serve: Serve) -> None:
    sign_in = status("AUTH_REQUIRED", "Sign in at https://sso")
    plays: list[list[Step]] = [["I need ", "to know. ", WHICH], [sign_in], ["It rains.", DONE]]
    async with serve_far_agent(serve, *plays) as (suite, remote):
        events = await ask(suite, which="Rome", far={"answer": "done"})
    assert read_messages(remote) == ["hello", "Rome", "done"]
    [task] = remote.tasks.values()
    assert [message.get("taskId") for message in remote.messages] == [None, task.id, task.id]
    assert kinds(events, "gate.") == ["gate.open", "gate.close"] * 2
    assert texts(events, "content") == ["I need ", "to know. ", "It rains."]
    assert events[-1]["type"] == "run.complete"
    questions = [event["toolParams"]["question"] for event in events if event["type"] == "tool.end"]
    assert questions[0] == "Which city?"
    assert questions[1].startswith("Far needs an authorization")
    assert questions[1].endswith("Sign in at https://sso")


async def test_a_remote_sub_agent_asks_the_user_and_its_failure_is_a_result(serve: Serve) -> None:
    plays: list[list[Step]] = [[WHICH], [status("FAILED", "no such city")]]
    async with serve_far_agent(serve, *plays, turns=[DELEGATE, answer("I could not.")]) as (suite, remote):
        events = await ask(suite, "hello", "react", which="Atlantis")
    assert read_messages(remote) == ["look it up", "Atlantis"]
    failure = json.loads(results(events)[-1][0])
    assert (failure["ok"], failure["error"]) == (False, "REMOTE_FAILED")
    assert failure["message"].endswith("no such city")
    assert read_answer(events) == "I could not."


async def test_an_expired_question_cancels_the_remote_task_and_fails_the_run(serve: Serve) -> None:
    async with serve_far_agent(serve, [WHICH], questionTimeoutMs=50) as (suite, remote):
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
async def test_a_remote_end_without_an_answer_is_an_error_with_its_text(
    serve: Serve, end: dict[str, Any], reason: str, words: str
) -> None:
    async with serve_far_agent(serve, [end]) as (suite, remote):
        events = await suite.ask("hello", "far")
    assert read_reason(events) == reason
    assert words in events[-1]["error"]["message"]
    assert "CancelTask" not in remote.calls


async def test_working_messages_are_reasoning_and_the_completion_message_is_the_answer(serve: Serve) -> None:
    working_status = status("WORKING", "Looking it up", id="m1")
    async with serve_far_agent(serve, [working_status, working_status, status("COMPLETED", "It rains.")]) as (suite, _):
        events = await suite.ask("hello", "far")
    assert texts(events, "reasoning") == ["Looking it up\n"]
    assert texts(events, "content") == ["It rains."]


async def test_a_remote_agent_may_answer_with_a_message_without_a_task(serve: Serve) -> None:
    message = {"messageId": "m", "role": "ROLE_AGENT", "contextId": "c", "parts": [{"text": "It rains."}]}
    async with serve_far_agent(serve) as (suite, remote):
        remote.replies = [{"message": message}]
        assert texts(await suite.ask("hello", "far"), "content") == ["It rains."]
        await suite.ask("again", "far")
    assert remote.messages[1]["contextId"] == "c"


async def test_a_replaced_artifact_resets_the_answer(serve: Serve) -> None:
    form = artifact("", name="form", parts=[{"data": {"n": 3, "x": [1.5]}}])
    async with serve_far_agent(serve, ["Let me see", artifact("It rains."), form, DONE]) as (suite, _):
        events = await suite.ask("hello", "far")
    assert only(events, "attempt.reset")["reason"] == "REMOTE_REPLACED"
    assert read_answer(events) == 'It rains.\n\n{"n":3,"x":[1.5]}'


async def test_text_before_a_question_may_be_the_whole_answer(serve: Serve) -> None:
    async with serve_far_agent(serve, ["It rains. ", WHICH], [DONE]) as (suite, _):
        assert read_answer(await ask(suite, which="Rome")) == "It rains. "


@pytest.mark.parametrize("tells_first", [True, False])
async def test_a_remote_stream_that_breaks_is_subscribed_to_again(serve: Serve, tells_first: bool) -> None:
    async with serve_far_agent(serve, ["one ", CUT, 0.3, "two ", "three", DONE]) as (suite, remote):
        remote.tells_first = tells_first
        events = await suite.ask("hello", "far")
    assert read_answer(events) == "one two three"
    assert kinds(events, "attempt") == []
    assert len(remote.messages) == 1
    assert "SubscribeToTask" in remote.calls


async def test_after_silence_the_task_is_subscribed_to_again(serve: Serve) -> None:
    async with serve_far_agent(serve, ["one ", 1.0, "two", DONE], silenceTimeoutMs=200) as (suite, remote):
        assert read_answer(await suite.ask("hello", "far")) == "one two"
    assert len(remote.messages) == 1
    assert remote.calls.count("SubscribeToTask") >= 2


async def test_a_message_without_a_reply_makes_the_run_ask_a_person(serve: Serve) -> None:
    async with serve_far_agent(serve, requestTimeoutMs=300) as (suite, remote):
        remote.hold = release = asyncio.Event()
        assert read_reason(await ask(suite, it="leave it")) == "REMOTE_OUTCOME_UNKNOWN"
        assert len(remote.messages) == 1

        async def free() -> None:
            await wait_until(lambda: len(remote.messages) >= 3)
            release.set()

        freeing = asyncio.create_task(free())
        events = await ask(suite, it=["send it again"])
        await freeing
    assert read_answer(events) == "one two three"
    assert only(events, "run.notice")["code"] == "OUTCOME_UNKNOWN"


async def test_an_idempotent_message_is_resent_and_creates_one_task(serve: Serve) -> None:
    async with serve_far_agent(serve, effect="idempotent") as (suite, remote):
        remote.knows_ids, remote.drops = True, 2
        events = await suite.ask("hello", "far")
    assert read_answer(events) == "one two three"
    assert len({message["messageId"] for message in remote.messages}) == 1
    assert len(remote.tasks) == 1


@pytest.mark.parametrize(("drops", "loses"), [(1, 0), (0, 1)], ids=["found", "sent again"])
async def test_a_lost_answer_to_a_question_is_found_or_sent_again(serve: Serve, drops: int, loses: int) -> None:
    async with serve_far_agent(serve, [WHICH], ["It rains in ", "Rome.", DONE]) as (suite, remote):

        async def lose() -> None:
            await wait_until(lambda: remote.tasks)
            remote.drops, remote.loses = drops, loses

        losing = asyncio.create_task(lose())
        events = await ask(suite, which="Rome")
        await losing
    assert read_answer(events) == "It rains in Rome."
    assert read_messages(remote) == ["hello", "Rome"]


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
async def test_fields_we_do_not_read_may_be_invalid(serve: Serve, fields: bytes, mark: bytes) -> None:
    task = b'{"id":"t","contextId":"c","artifacts":[{"artifactId":"a","parts":[{"text":"It rains."}]}],%b}' % fields
    async with serve_far_agent(serve) as (suite, remote):
        remote.replies = [mark + b'{"jsonrpc":"2.0","id":"1","result":{"task":%b}}' % task]
        assert read_answer(await suite.ask("hello", "far")) == "It rains."


async def test_half_a_surrogate_pair_in_a_remote_message_is_replaced(serve: Serve) -> None:
    message = rb'{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"\\ud83e \ud83e\udd16 \ud83e"}]}'
    async with serve_far_agent(serve) as (suite, remote):
        remote.replies = [b'{"jsonrpc":"2.0","id":"1","result":{"message":%b}}' % message]
        assert read_answer(await suite.ask("hello", "far")) == "\\ud83e \U0001f916 \ufffd"


def test_timestamps_without_a_zone_are_read_as_utc() -> None:
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
async def test_fields_of_a_card_we_do_not_read_may_be_invalid(serve: Serve, fields: dict[str, Any]) -> None:
    async with serve_far_agent(serve) as (suite, remote):
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
async def test_an_invalid_remote_stream_fails_the_run_and_cancels_the_task(
    serve: Serve, steps: list[Step], reason: str
) -> None:
    async with serve_far_agent(serve, ["one ", *steps, 3600.0], maxAnswerBytes=100_000) as (suite, remote):
        assert read_reason(await suite.ask("hello", "far")) == reason
        await asyncio.wait_for(remote.canceled.wait(), 60)


async def test_a_cancel_cancels_the_remote_task_without_waiting_for_it(serve: Serve) -> None:
    async with serve_far_agent(serve, ["one ", 3600.0]) as (suite, remote):
        events = await people.ask(suite, ("content.delta", cancels(suite)), agent_key="far")
        assert events[-1]["type"] == "run.cancel"
        await asyncio.wait_for(remote.canceled.wait(), 60)
    assert remote.calls.count("CancelTask") == 1


async def test_a_run_out_of_time_cancels_the_remote_task(serve: Serve) -> None:
    async with serve_far_agent(serve, ["one ", 3600.0], budget={"timeoutMs": 500}) as (suite, remote):
        assert read_reason(await suite.ask("hello", "far")) == "BUDGET_EXCEEDED"
        await asyncio.wait_for(remote.canceled.wait(), 60)


async def test_credentials_are_looked_up_and_sent_only_to_the_cards_host(
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
            headers_sent = [
                (request_headers.get("Authorization"), request_headers.get("X-Api-Key"), request_headers.get("X-Team"))
                for request_headers in remote.headers
            ]
            assert headers_sent == [("Bearer s3cret-token", "k3y", "blue")] * 2
            assert read_reason(await suite.ask("hello", "wrong")) == "REMOTE_AUTHENTICATION"
            assert read_reason(await suite.ask("hello", "unset")) == "REMOTE_AUTHENTICATION"
            before = len(remote.headers)
            assert read_reason(await suite.ask("hello", "elsewhere")) == "REMOTE_NOT_ALLOWED"
            assert len(remote.headers) == before


async def test_only_named_or_allowed_hosts_are_reached(serve: Serve) -> None:
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
    async with scripted_remote() as other, serve_far_agent(serve) as (suite, remote):
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
async def test_an_invalid_card_fails_the_run(serve: Serve, card: Any, reason: str) -> None:
    async with serve_far_agent(serve) as (suite, remote):
        remote.card = card
        assert read_reason(await suite.ask("hello", "far")) == reason
    assert not remote.messages


async def test_the_cost_of_a_remote_agent_is_estimated_and_limited(serve: Serve) -> None:
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
async def test_a_takeover_at_any_line_sends_no_message_twice(serve: Serve, effect: str, take: Take) -> None:
    async with serve_far_agent(serve, effect=effect) as (suite, remote):
        remote.knows_ids = effect == "idempotent"
        await suite.stop()
        crashes = Crashes(suite)
        undisturbed = await run_through_kill(suite, remote, crashes)
        assert read_answer(undisturbed) == "It rains in Rome."
        appends = crashes.appends[run_of(undisturbed)]
        assert appends > 6
        in_doubt: list[int] = []
        for append in sorted({2, *take(range(1, appends), effect)}):
            whole = await run_through_kill(suite, remote, crashes, append=append)
            assert len(remote.tasks) == 1, append
            if effect == "once" and whole[-1]["type"] == "run.error":
                # The sender died while sending: whether the message arrived is unknown, so a person was asked.
                assert read_reason(whole) == "REMOTE_OUTCOME_UNKNOWN"
                assert len(remote.messages) == 1
                in_doubt.append(append)
                continue
            assert whole[-1]["type"] == "run.complete", append
            assert read_answer(whole) == "It rains in Rome.", append
            texts_by_id = {message["messageId"]: message["parts"][0]["text"] for message in remote.messages}
            assert [*texts_by_id.values()] == ["hello", "Rome"], append
            assert effect == "idempotent" or len(remote.messages) == 2, append
        assert in_doubt == ([2] if effect == "once" else [])


@at_places
async def test_a_takeover_at_any_event_follows_the_same_task(serve: Serve, take: Take) -> None:
    async with serve_far_agent(serve) as (suite, remote):
        await suite.stop()
        crashes = Crashes(suite)
        undisturbed = await run_through_kill(suite, remote, crashes)
        for event in take(range(5, len(undisturbed)), "events"):
            whole = await run_through_kill(suite, remote, crashes, event=event)
            if whole[-1]["type"] == "run.error":
                assert read_reason(whole) == "REMOTE_OUTCOME_UNKNOWN"
                assert len(remote.messages) == 1, event
                continue
            assert read_answer(whole) == "It rains in Rome.", event
            assert read_messages(remote) == ["hello", "Rome"], event
            assert len(remote.tasks) == 1, event


async def run_through_kill(
    suite: Suite, remote: ScriptedRemote, crashes: Crashes, *, append: int = 0, event: int = 0
) -> list[Event]:
    """Run in a new chat, in one process or in two, the first of which dies at an append or after this number of events.
    Gates are answered."""
    remote.plays = [["Let me ", 0.05, "ask. ", WHICH], ["It rains ", 0.1, "in ", "Rome.", DONE]]
    remote.messages.clear()
    remote.tasks.clear()
    crashes.kill_at(append or -1)
    events: list[Event] = []
    async with restart(suite) as client, client.ask("hello", agent_key="far", chat_id=str(uuid.uuid4())) as deltas:
        await follow(suite, events, deltas, event)
        if event:
            crashes.kill(run_of(events))
    crashes.kill_at(-1)
    if append or event:
        assert events[-1]["type"] not in TERMINAL
        async with restart(suite) as client, client.attach(run_of(events), events[-1]["seq"]) as deltas:
            await follow(suite, events, deltas)
    return events


async def follow(suite: Suite, events: list[Event], deltas: Any, until: int = 0) -> None:
    answered_gates = {event["gateId"] for event in events if event["type"] == "gate.close"}
    for event in [*events]:
        await answer_gate(suite, events, event, answered_gates)
    async for delta in deltas:
        events.append(as_json(delta))
        await answer_gate(suite, events, events[-1], answered_gates)
        if len(events) == until:
            return


async def answer_gate(suite: Suite, events: list[Event], gate: Event, answered_gates: set[str]) -> None:
    """Answer the gate if this event opens one that is unanswered."""
    if gate["type"] != "gate.open" or gate["gateId"] in answered_gates:
        return
    answered_gates.add(gate["gateId"])
    question_events = [
        event for event in events if event.get("toolId") == gate["toolId"]
    ]  # A late reader gets a snapshot.
    is_doubt = "sent again" in json.dumps(question_events)
    with suppress(HeadraceError):
        await submit(suite, run_of(events), gate["gateId"], "leave it" if is_doubt else "Rome")
