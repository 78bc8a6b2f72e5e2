"""Mode REMOTE: an agent elsewhere, here a scripted one, answers; whatever it does, the run ends honestly."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.event_json import parse_event
from headrace.fold import Fold
from tests.support.orchestrator import Serve, Suite, as_json, submit
from tests.support.orchestrator.crashes import Crashes, restart
from tests.support.orchestrator.events import run_of
from tests.support.orchestrator.scripted_remote import (
    CUT,
    DONE,
    ScriptedRemote,
    Step,
    artifact,
    scripted_remote,
    status,
)
from tests.support.orchestrator.steps import answer, call, finish
from tests.support.order import TERMINAL, Event, check_order
from tests.support.tiers import Take, at_places
from tests.support.waiting import wait_until


def write_agent(folder: Path, remote: ScriptedRemote, key: str = "far", **section: Any) -> None:
    agent = {"mode": "REMOTE", "name": "Far", "remote": {"card": f"{remote.url}/card"} | section}
    if limits := section.pop("budget", None):
        agent |= {"budget": limits, "remote": {"card": f"{remote.url}/card"} | section}
    (folder / "agents").mkdir(exist_ok=True)
    (folder / "agents" / f"{key}.json").write_text(json.dumps(agent))


@asynccontextmanager
async def far_agent(
    serve: Serve, folder: Path, plays: list[list[Step]] | None = None, **section: Any
) -> AsyncGenerator[tuple[Suite, ScriptedRemote]]:
    """A suite with the agent `far`, which is elsewhere and plays these steps."""
    async with scripted_remote() as remote:
        if plays is not None:
            remote.plays = plays
        write_agent(folder, remote, **section)
        async with serve() as suite:
            yield suite, remote


def read_texts(events: list[Event], kind: str = "content.delta") -> list[str]:
    return [event["delta"] for event in events if event["type"] == kind]


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
async def test_an_answer_is_forwarded_as_it_comes(serve: Serve, tmp_path: Path, binding: str, streaming: bool) -> None:
    async with scripted_remote(binding, streaming=streaming) as remote:
        write_agent(tmp_path, remote)
        async with serve() as suite:
            events = await suite.ask("hello", "far")
    expected = ["one ", "two ", "three"] if streaming else ["one two three"]
    assert read_texts(events) == expected
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


def read_kinds(events: list[Event], *prefixes: str) -> list[str]:
    return [event["type"] for event in events if event["type"].startswith(prefixes)]


async def test_a_chat_goes_on_in_the_same_context_and_a_sub_agent_begins_one(serve: Serve, tmp_path: Path) -> None:
    async with scripted_remote() as remote:
        write_agent(tmp_path, remote)
        delegate = call("call_subagent", json.dumps({"agentKey": "far", "task": "look it up"}))
        turns = [[*delegate, *finish("tool_calls")], answer("done")]
        async with serve(*turns, subagents=["far"]) as suite:
            await suite.ask("first", "far")
            await suite.ask("second", "far")
            events = await suite.ask("third", "react")
    contexts = [message.get("contextId") for message in remote.messages]
    assert contexts[0] is None
    assert contexts[1:] == [next(iter(remote.tasks.values())).context_id, None]
    assert [message["parts"][0]["text"] for message in remote.messages] == ["first", "second", "look it up"]
    deltas = [event for event in events if event["type"] == "content.delta" and "subagentId" in event]
    assert [event["delta"] for event in deltas] == ["one ", "two ", "three"]
    [result] = [event for event in events if event["type"] == "tool.result"]
    assert json.loads(result["result"])["result"] == "one two three"


async def test_a_conversation_that_is_not_known_any_more_is_begun_anew(serve: Serve, tmp_path: Path) -> None:
    async with far_agent(serve, tmp_path) as (suite, remote):
        await suite.ask("first", "far")
        remote.knows_contexts = False
        assert read_answer(await suite.ask("second", "far")) == "one two three"
        remote.knows_contexts = True
        await suite.ask("third", "far")
    first, second = (
        task.context_id for task in remote.tasks.values() if task.history[0]["parts"][0]["text"] != "third"
    )
    assert [message.get("contextId") for message in remote.messages] == [None, first, None, second]


async def test_a_run_that_waits_is_cancelled_there_by_whoever_has_it(serve: Serve, tmp_path: Path) -> None:
    async with far_agent(serve, tmp_path, [[status("INPUT_REQUIRED", "Which city?")]]) as (suite, remote):
        await suite.stop()
        crashes, events = Crashes(suite), list[Event]()
        async with (
            restart(suite) as client,
            client.ask("hello", agent_key="far", chat_id=str(uuid.uuid4())) as deltas,
        ):
            async for delta in deltas:
                events.append(as_json(delta))
                if events[-1]["type"] == "gate.open":
                    crashes.kill(run_of(events))
                    break
        async with restart(suite) as client, client.attach(run_of(events), events[-1]["seq"]) as deltas:
            await client.cancel(run_of(events))
            async for delta in deltas:
                events.append(as_json(delta))
            await asyncio.wait_for(remote.canceled.wait(), 60)
    assert events[-1]["type"] == "run.cancel"


async def test_what_it_asks_our_user_is_asked_and_the_answer_goes_to_the_same_task(
    serve: Serve, tmp_path: Path
) -> None:
    async with far_agent(
        serve,
        tmp_path,
        [
            ["I need ", "to know. ", status("INPUT_REQUIRED", "Which city?")],
            [status("AUTH_REQUIRED", "Sign in at https://sso")],
            ["It rains.", DONE],
        ],
    ) as (suite, remote):
        events = await ask(suite, which="Rome", far={"answer": "done"})
    assert [message["parts"][0]["text"] for message in remote.messages] == ["hello", "Rome", "done"]
    [task] = remote.tasks.values()
    assert [message.get("taskId") for message in remote.messages] == [None, task.id, task.id]
    assert read_kinds(events, "gate.") == ["gate.open", "gate.close"] * 2
    assert read_texts(events) == ["I need ", "to know. ", "It rains."]
    assert events[-1]["type"] == "run.complete"
    questions = [event["toolParams"]["question"] for event in events if event["type"] == "tool.end"]
    assert questions[0] == "Which city?"
    assert questions[1].startswith("Far needs an authorization")
    assert questions[1].endswith("Sign in at https://sso")


async def test_a_sub_agent_elsewhere_asks_the_user_and_its_failure_is_a_value(serve: Serve, tmp_path: Path) -> None:
    async with scripted_remote() as remote:
        remote.plays = [[status("INPUT_REQUIRED", "Which city?")], [status("FAILED", "no such city")]]
        write_agent(tmp_path, remote)
        delegate = call("call_subagent", json.dumps({"agentKey": "far", "task": "look it up"}))
        turns = [[*delegate, *finish("tool_calls")], answer("I could not.")]
        async with serve(*turns, subagents=["far"]) as suite:
            events = await ask(suite, "hello", "react", which="Atlantis")
    assert [message["parts"][0]["text"] for message in remote.messages] == ["look it up", "Atlantis"]
    result = next(event for event in reversed(events) if event["type"] == "tool.result")
    failure = json.loads(result["result"])
    assert (failure["ok"], failure["error"]) == (False, "REMOTE_FAILED")
    assert failure["message"].endswith("no such city")
    assert read_answer(events) == "I could not."


async def test_a_question_that_nobody_answers_ends_the_task_there_and_the_run_here(
    serve: Serve, tmp_path: Path
) -> None:
    async with far_agent(serve, tmp_path, [[status("INPUT_REQUIRED", "Which city?")]], questionTimeoutMs=50) as (
        suite,
        remote,
    ):
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
    serve: Serve, tmp_path: Path, end: dict[str, Any], reason: str, words: str
) -> None:
    async with far_agent(serve, tmp_path, [[end]]) as (suite, remote):
        events = await suite.ask("hello", "far")
    assert read_reason(events) == reason
    assert words in events[-1]["error"]["message"]
    assert "CancelTask" not in remote.calls


async def test_remarks_on_the_way_are_reasoning_and_a_last_word_is_the_answer(serve: Serve, tmp_path: Path) -> None:
    async with scripted_remote() as remote:
        said = status("WORKING", "Looking it up", id="m1")
        remote.plays = [[said, said, status("COMPLETED", "It rains.")]]
        write_agent(tmp_path, remote)
        async with serve() as suite:
            events = await suite.ask("hello", "far")
    assert read_texts(events, "reasoning.delta") == ["Looking it up\n"]
    assert read_texts(events) == ["It rains."]


async def test_an_agent_may_answer_with_a_message_and_no_task(serve: Serve, tmp_path: Path) -> None:
    async with scripted_remote() as remote:
        parts = [{"text": "It rains."}]
        remote.replies = [{"message": {"messageId": "m", "role": "ROLE_AGENT", "contextId": "c", "parts": parts}}]
        write_agent(tmp_path, remote)
        async with serve() as suite:
            assert read_texts(await suite.ask("hello", "far")) == ["It rains."]
            await suite.ask("again", "far")
    assert remote.messages[1]["contextId"] == "c"


async def test_what_is_taken_back_is_taken_back_here(serve: Serve, tmp_path: Path) -> None:
    async with scripted_remote() as remote:
        data = [{"data": {"n": 3, "x": [1.5]}}]
        remote.plays = [["Let me see", artifact("It rains."), artifact("", name="form", parts=data), DONE]]
        write_agent(tmp_path, remote)
        async with serve() as suite:
            events = await suite.ask("hello", "far")
    [reset] = [event for event in events if event["type"] == "attempt.reset"]
    assert reset["reason"] == "REMOTE_REPLACED"
    assert read_answer(events) == 'It rains.\n\n{"n":3,"x":[1.5]}'


async def test_what_stood_before_a_question_may_be_all_that_there_is(serve: Serve, tmp_path: Path) -> None:
    plays: list[list[Step]] = [["It rains. ", status("INPUT_REQUIRED", "Which city?")], [DONE]]
    async with far_agent(serve, tmp_path, plays) as (suite, _):
        assert read_answer(await ask(suite, which="Rome")) == "It rains. "


@pytest.mark.parametrize("tells_first", [True, False])
async def test_a_stream_that_breaks_in_mid_answer_is_followed_anew(
    serve: Serve, tmp_path: Path, tells_first: bool
) -> None:
    async with scripted_remote() as remote:
        remote.tells_first = tells_first
        remote.plays = [["one ", CUT, 0.3, "two ", "three", DONE]]
        write_agent(tmp_path, remote)
        async with serve() as suite:
            events = await suite.ask("hello", "far")
    assert read_answer(events) == "one two three"
    assert read_kinds(events, "attempt") == []
    assert len(remote.messages) == 1
    assert "SubscribeToTask" in remote.calls


async def test_silence_has_the_task_looked_at(serve: Serve, tmp_path: Path) -> None:
    async with far_agent(serve, tmp_path, [["one ", 1.0, "two", DONE]], silenceTimeoutMs=200) as (suite, remote):
        assert read_answer(await suite.ask("hello", "far")) == "one two"
    assert len(remote.messages) == 1
    assert remote.calls.count("SubscribeToTask") >= 2


async def test_who_takes_the_message_and_says_nothing_has_a_person_asked(serve: Serve, tmp_path: Path) -> None:
    async with scripted_remote() as remote:
        remote.hold = asyncio.Event()
        write_agent(tmp_path, remote, requestTimeoutMs=300)
        async with serve() as suite:
            assert read_reason(await ask(suite, it="leave it")) == "REMOTE_OUTCOME_UNKNOWN"
            assert len(remote.messages) == 1

            async def free() -> None:
                await wait_until(lambda: len(remote.messages) >= 3)
                assert remote.hold is not None
                remote.hold.set()

            freeing = asyncio.create_task(free())
            events = await ask(suite, it=["send it again"])
            await freeing
    assert read_answer(events) == "one two three"
    assert [event["code"] for event in events if event["type"] == "run.notice"] == ["OUTCOME_UNKNOWN"]


async def test_a_message_that_is_known_by_its_id_is_sent_again_and_had_once(serve: Serve, tmp_path: Path) -> None:
    async with scripted_remote() as remote:
        remote.knows_ids, remote.drops = True, 2
        write_agent(tmp_path, remote, effect="idempotent")
        async with serve() as suite:
            events = await suite.ask("hello", "far")
    assert read_answer(events) == "one two three"
    assert len({message["messageId"] for message in remote.messages}) == 1
    assert len(remote.tasks) == 1


async def test_an_answer_to_a_question_that_was_lost_is_found_or_sent_again(serve: Serve, tmp_path: Path) -> None:
    for drops, loses in ((1, 0), (0, 1)):
        async with scripted_remote() as remote:
            asked = status("INPUT_REQUIRED", "Which city?", id="q1")
            remote.plays = [[asked], ["It rains in ", "Rome.", DONE]]
            write_agent(tmp_path, remote)
            async with serve() as suite:

                async def lose(
                    suite: Suite = suite, remote: ScriptedRemote = remote, lost: Any = (drops, loses)
                ) -> None:
                    await wait_until(lambda: remote.tasks)
                    remote.drops, remote.loses = lost

                losing = asyncio.create_task(lose())
                events = await ask(suite, which="Rome")
                await losing
        assert read_answer(events) == "It rains in Rome."
        assert [message["parts"][0]["text"] for message in remote.messages] == ["hello", "Rome"]


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([b"data: nonsense\n\n"], "REMOTE_BAD_ANSWER"),
        ([b'data: {"jsonrpc":"2.0","id":"1","result":{"task":{"id":7,"status":[]}}}\n\n'], "REMOTE_BAD_ANSWER"),
        ([b'data: {"jsonrpc":"2.0","id":"1","result":{}}\n\n'], "REMOTE_BAD_ANSWER"),
        ([b'data: {"jsonrpc":"2.0","id":"1"}\n\n'], "REMOTE_BAD_ANSWER"),
        (
            [b'data: {"jsonrpc":"2.0","id":"1","result":' + b'{"task":' * 300 + b"}" * 301 + b"\n\n"],
            "REMOTE_BAD_ANSWER",
        ),
        ([b"data: " + b"x" * 300_000], "REMOTE_BAD_ANSWER"),
        (["x" * 900] * 200, "REMOTE_BAD_ANSWER"),
        ([b'data: {"jsonrpc":"2.0","id":"1","error":{"code":-32602,"message":"no"}}\n\n'], "REMOTE_FAILED"),
        ([b'data: {"jsonrpc":"2.0","id":"1","result":{"task":{"id":"other"}}}\n\n'], "REMOTE_BAD_ANSWER"),
    ],
)
async def test_nonsense_ends_the_run_and_is_cancelled(
    serve: Serve, tmp_path: Path, steps: list[Step], reason: str
) -> None:
    async with far_agent(serve, tmp_path, [["one ", *steps, 3600.0]], maxAnswerBytes=100_000) as (suite, remote):
        assert read_reason(await suite.ask("hello", "far")) == reason
        await asyncio.wait_for(remote.canceled.wait(), 60)


async def test_a_cancel_is_a_cancel_there_and_does_not_wait_for_it(serve: Serve, tmp_path: Path) -> None:
    async with far_agent(serve, tmp_path, [["one ", 3600.0]]) as (suite, remote):
        events: list[Event] = []
        async with suite.client.ask("hello", agent_key="far") as deltas:
            async for delta in deltas:
                events.append(as_json(delta))
                if events[-1]["type"] == "content.delta":
                    await suite.client.cancel(run_of(events))
        assert events[-1]["type"] == "run.cancel"
        await asyncio.wait_for(remote.canceled.wait(), 60)
    assert remote.calls.count("CancelTask") == 1


async def test_the_runs_time_ends_the_task_there(serve: Serve, tmp_path: Path) -> None:
    async with far_agent(serve, tmp_path, [["one ", 3600.0]], budget={"timeoutMs": 500}) as (suite, remote):
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
        write_agent(tmp_path, remote, token="env:FAR_TOKEN", headers=headers)
        write_agent(tmp_path, remote, "wrong", headers={"X-Team": "blue"})
        write_agent(tmp_path, remote, "unset", token="env:NOT_SET")
        write_agent(tmp_path, other, "elsewhere", token="env:FAR_TOKEN")
        other.card["supportedInterfaces"][0]["url"] = remote.url.replace("127.0.0.1", "localhost") + "/rpc"
        async with serve() as suite:
            assert read_answer(await suite.ask("hello", "far")) == "one two three"
            shown = [(one.get("Authorization"), one.get("X-Api-Key"), one.get("X-Team")) for one in remote.headers]
            assert shown == [("Bearer s3cret-token", "k3y", "blue")] * 2
            assert read_reason(await suite.ask("hello", "wrong")) == "REMOTE_AUTHENTICATION"
            assert read_reason(await suite.ask("hello", "unset")) == "REMOTE_AUTHENTICATION"
            before = len(remote.headers)
            assert read_reason(await suite.ask("hello", "elsewhere")) == "REMOTE_NOT_ALLOWED"
            assert len(remote.headers) == before


async def test_only_what_is_named_or_opened_is_reached(serve: Serve, tmp_path: Path) -> None:
    async with scripted_remote() as remote, scripted_remote() as other:
        served = {"url": f"{remote.url}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        named = remote.url.replace("127.0.0.1", "localhost")
        other.card["supportedInterfaces"] = [served | {"url": f"{named}/rpc"}, served]
        write_agent(tmp_path, remote, "named", card=f"{remote.url}/card", hosts=["localhost"])
        write_agent(tmp_path, remote, "closed", card=f"{named}/card")
        write_agent(tmp_path, remote, "plain", card="http://example.com/card")
        write_agent(tmp_path, remote, "metadata", card="https://169.254.169.254/card")
        write_agent(tmp_path, remote, "nobody", card="http://127.0.0.1:9/card")
        write_agent(tmp_path, remote, "none", card=f"{remote.url}/missing")
        async with serve() as suite:
            assert read_answer(await suite.ask("hello", "named")) == "one two three"
            for agent in ("closed", "plain", "metadata"):
                assert read_reason(await suite.ask("hello", agent)) == "REMOTE_NOT_ALLOWED", agent
            for agent in ("nobody", "none"):
                assert read_reason(await suite.ask("hello", agent)) == "REMOTE_UNAVAILABLE", agent


@pytest.mark.parametrize("path", ["/card", "/rpc"])
async def test_redirects_are_not_followed(serve: Serve, tmp_path: Path, path: str) -> None:
    async with scripted_remote() as remote, scripted_remote() as other:
        remote.redirects[path] = other.url + path
        write_agent(tmp_path, remote)
        async with serve() as suite:
            assert read_reason(await suite.ask("hello", "far")) == "REMOTE_NOT_ALLOWED"
    assert not other.headers


@pytest.mark.parametrize(
    ("card", "reason"),
    [
        ({"name": "x"}, "REMOTE_BAD_ANSWER"),
        (["x"], "REMOTE_BAD_ANSWER"),
        ({"supportedInterfaces": "x"}, "REMOTE_BAD_ANSWER"),
        (
            {"supportedInterfaces": [{"url": "x", "protocolBinding": "GRPC", "protocolVersion": "1.0"}]},
            "REMOTE_BAD_ANSWER",
        ),
        (
            {"supportedInterfaces": [{"url": "x", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"}]},
            "REMOTE_BAD_ANSWER",
        ),
        (
            {"supportedInterfaces": [{"url": "x", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]},
            "REMOTE_NOT_ALLOWED",
        ),
        (
            {"supportedInterfaces": [{"url": "file:///etc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]},
            "REMOTE_NOT_ALLOWED",
        ),
        ({"name": "x" * 400_000}, "REMOTE_BAD_ANSWER"),
    ],
)
async def test_a_card_that_is_none_is_named(serve: Serve, tmp_path: Path, card: Any, reason: str) -> None:
    async with scripted_remote() as remote:
        remote.card = card
        write_agent(tmp_path, remote)
        async with serve() as suite:
            assert read_reason(await suite.ask("hello", "far")) == reason
    assert not remote.messages


async def test_what_it_costs_is_estimated_and_bounded(serve: Serve, tmp_path: Path) -> None:
    async with scripted_remote() as remote:
        remote.plays = [["x" * 3000, DONE]]
        write_agent(tmp_path, remote, "priced", price={"outputPerMTok": 1000}, budget={"maxCostUsd": 100})
        write_agent(tmp_path, remote, "dear", budget={"maxCostUsd": 100})
        async with serve() as suite:
            events = await suite.ask("hello", "priced")
            assert read_reason(await suite.ask("hello", "dear")) == "PRICE_UNKNOWN"
    usage = events[-1]["usage"]
    assert (usage["modelCalls"], usage["inputTokens"], usage["outputTokens"]) == (1, 2, 1000)
    assert usage["costUsd"] == pytest.approx(1.0)
    assert usage["estimated"]
    assert len(remote.messages) == 1


@at_places
@pytest.mark.parametrize("effect", ["once", "idempotent"])
async def test_whoever_takes_a_run_over_sends_nothing_twice(
    serve: Serve, tmp_path: Path, effect: str, take: Take
) -> None:
    async with scripted_remote() as remote:
        remote.knows_ids = effect == "idempotent"
        asked = status("INPUT_REQUIRED", "Which city?", id="q1")

        def begin() -> None:
            remote.plays = [["Let me ask. ", asked], ["It rains ", 0.1, "in Rome.", DONE]]
            remote.messages.clear()
            remote.tasks.clear()

        begin()
        write_agent(tmp_path, remote, effect=effect)
        async with serve() as suite:
            await suite.stop()
            crashes = Crashes(suite)
            alone = await run_on(suite, crashes, None)
            assert read_answer(alone) == "It rains in Rome."
            appends = crashes.appends[run_of(alone)]
            assert appends > 6
            in_doubt: list[int] = []
            for append in sorted({2, *take(range(1, appends), effect)}):
                begin()
                crashes.kill_at(append)
                whole = await run_on(suite, crashes, append)
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
async def test_whoever_takes_over_at_any_event_follows_the_same_task(serve: Serve, tmp_path: Path, take: Take) -> None:
    async with scripted_remote() as remote:

        def begin() -> None:
            asked = status("INPUT_REQUIRED", "Which city?", id="q1")
            remote.plays = [["Let me ", 0.05, "ask. ", asked], ["It rains ", 0.1, "in ", "Rome.", DONE]]
            remote.messages.clear()
            remote.tasks.clear()

        begin()
        write_agent(tmp_path, remote)
        async with serve() as suite:
            await suite.stop()
            crashes = Crashes(suite)
            alone = await run_on(suite, crashes, None)
            for event in take(range(5, len(alone)), "events"):
                begin()
                whole = await run_on(suite, crashes, None, event)
                if whole[-1]["type"] == "run.error":
                    assert read_reason(whole) == "REMOTE_OUTCOME_UNKNOWN"
                    assert len(remote.messages) == 1, event
                    continue
                assert read_answer(whole) == "It rains in Rome.", event
                assert [message["parts"][0]["text"] for message in remote.messages] == ["hello", "Rome"], event
                assert len(remote.tasks) == 1, event


async def run_on(suite: Suite, crashes: Crashes, append: int | None, event: int = 0) -> list[Event]:
    """A run in a chat of its own, by one process or by two, the first of which dies at an append, or once its reader
    has so many events; its gates are answered."""
    seen: list[Event] = []
    async with restart(suite) as client, client.ask("hello", agent_key="far", chat_id=str(uuid.uuid4())) as deltas:
        await follow(suite, seen, deltas, event)
        if event:
            crashes.kill(run_of(seen))
    crashes.kill_at(-1)
    if append is not None or event:
        assert seen[-1]["type"] not in TERMINAL
        async with restart(suite) as client, client.attach(run_of(seen), seen[-1]["seq"]) as deltas:
            await follow(suite, seen, deltas)
    return seen


async def follow(suite: Suite, seen: list[Event], deltas: Any, until: int = 0) -> None:
    closed = {event["gateId"] for event in seen if event["type"] == "gate.close"}
    answered: set[str] = set()
    for event in [*seen]:
        if event["type"] == "gate.open" and event["gateId"] not in closed:
            await answer_gate(suite, seen, event, answered)
    async for delta in deltas:
        seen.append(as_json(delta))
        if seen[-1]["type"] == "gate.open":
            await answer_gate(suite, seen, seen[-1], answered)
        if len(seen) == until:
            return


async def answer_gate(suite: Suite, seen: list[Event], gate: Event, answered: set[str]) -> None:
    if gate["gateId"] in answered:
        return
    answered.add(gate["gateId"])
    asked = [event for event in seen if event.get("toolId") == gate["toolId"]]  # or a snapshot, to who comes later
    is_doubt = "sent again" in json.dumps(asked)
    with suppress(HeadraceError):
        await submit(suite, run_of(seen), gate["gateId"], "leave it" if is_doubt else "Rome")
