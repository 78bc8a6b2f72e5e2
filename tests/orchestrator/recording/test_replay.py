"""Replay: the recording of each kind of run replays with the same events, and a difference is named."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from headrace.cassette.lines import read_cassette
from headrace.errors import InvalidRequest, NotFound, RateLimited
from headrace.v1 import agent_pb2, agent_pb2_grpc
from services.orchestrator.lifecycle.live_calls.cassette_rpc import PAGE_BYTES
from services.replay.heard import Difference
from services.replay.replaying import replay
from services.runtime.rpc.channels import open_channel
from tests.support.orchestrator import Serve, Suite, ask, cancels, submits, tool
from tests.support.orchestrator.own_agents import GRANTS, grant, make, put, wait_for_grants
from tests.support.orchestrator.recorded_runs import RUNS, World
from tests.support.orchestrator.steps import BREAK, answer, call, call_tool, content, finish, reasoning
from tests.support.order import Event


@pytest.fixture(autouse=True)
def local_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_TRANSPORT", "local")


async def replay_lines(lines: list[str]) -> int:
    """Replay in a thread, since a replay has an event loop of its own."""
    return await asyncio.to_thread(replay, read_cassette(lines))


async def record(suite: Suite, agent: str = "react", **fields: Any) -> list[str]:
    await suite.ask("hello", agent, record=True, **fields)
    return await suite.client.cassette(suite.run_ids[-1])


@pytest.mark.parametrize("kind", RUNS)
async def test_each_kind_of_run_replays_to_the_same_events(serve: Serve, kind: str) -> None:
    agent, play, changes = RUNS[kind]
    async with serve(**changes) as suite:
        World(suite, play)
        lines = await record(suite, agent)
        second_recording = await record(suite, agent)
    for recorded in (lines, second_recording):
        assert await replay_lines(recorded) == read_cassette(recorded).events[-1]["seq"]


async def test_a_run_of_a_tenants_own_agent_replays_to_the_same_events(serve: Serve, tmp_path: Path) -> None:
    rules = [{"id": name, "period": "day", "tenant": name, "usd": 1000} for name in ("default", "bolt")]
    (tmp_path / "budgets.yaml").write_text(json.dumps({"budgets": rules}))
    turns = [call_tool("look"), answer("Done.")]
    async with serve(*turns) as suite:
        grant(suite, {"grants": [GRANTS["grants"][0] | {"tenants": ["default", "bolt"]}]})
        await wait_for_grants(suite.client)
        await put(suite.client, make())
        lines = await record(suite, "own")
    assert not [line for line in lines if "bolt" in line], "the recording does not name other tenants"
    assert await replay_lines(lines) == read_cassette(lines).events[-1]["seq"]


def change_line(lines: list[str], member: str, old: str, new: str) -> int:
    """Change `old` to `new` in the first line that has this member and `old`; return its number."""
    for index, line in enumerate(lines):
        if member in json.loads(line) and old in line:
            lines[index] = line.replace(old, new)
            return index + 1
    raise AssertionError(f"no {member} has {old}")


async def test_a_replay_names_the_first_line_that_differs_and_its_field(serve: Serve) -> None:
    differences = (
        ("event", ':"good."', ':"bad."', r'^line NUMBER: event \d+ \(content.delta\): delta: recorded "bad."'),
        ("answer", '"content":"good."', '"content":"bad."', r'recorded "good\.", replayed "bad\."'),
        ("agent", '"REACT"', '"ONESHOT"', r"^the query is refused: no agent"),
        ("agent", "Be kind.", "Be rude.", r'LoadContext is called .* system: recorded "Be kind.", replayed "Be rude."'),
    )
    async with serve(answer("All ", "good."), react={"systemPrompt": "Be kind."}) as suite:
        lines = await record(suite)
    for member, old, new, difference in differences:
        changed = [*lines]
        number = change_line(changed, member, old, new)
        with pytest.raises(Difference, match=difference.replace("NUMBER", str(number))):
            await replay_lines(changed)


TURNS = call_tool("look", '{"at":1}'), call_tool("form", call_id="call_2"), answer("Thanks.")


def offer(suite: Suite, form_ms: int) -> None:
    suite.tools.tools = [tool("look", "backend", approval="ask"), tool("form", "frontend", timeout_ms=form_ms)]


async def test_a_replay_repeats_an_approval_a_form_and_a_steer(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "approvals.yaml").write_text("answerTimeoutMs: 90000\n")
    async with serve(*TURNS, toolConfig={"backends": ["look"], "frontends": ["form"]}) as suite:
        offer(suite, 60_000)

        async def approve(event: Event) -> None:
            await suite.client.steer(event["runId"], "be quick")
            await submits(suite, {"decision": "approve", "note": "fine"})(event)

        async def fill_in(event: Event) -> None:
            if event["kind"] == "form":
                await submits(suite, {"name": "Ada"})(event)

        await ask(suite, ("approval.ask", approve), *[("gate.open", fill_in)] * 2, record=True)
        cassette = read_cassette(await suite.client.cassette(suite.run_ids[-1]))
    assert cassette.files == {"approvals.yaml": "answerTimeoutMs: 90000\n"}
    methods = [line.given["received"] for line in cassette.recorder if line.kind == "received"]
    assert methods == ["AgentService/Steer", "AgentService/Submit", "AgentService/Submit"]
    await asyncio.to_thread(replay, cassette)


async def test_a_replay_repeats_an_expiry_without_waiting(serve: Serve) -> None:
    """The recorded wait is 2 s; a replay of an hour's wait takes no longer."""
    async with serve(*TURNS[1:], toolConfig={"frontends": ["form"]}) as suite:
        offer(suite, 2000)
        lines = await record(suite)
    events = read_cassette(lines).events
    assert "expired" in [event.get("state") for event in events]
    await replay_lines(lines)


async def test_a_replay_repeats_a_cancel(serve: Serve) -> None:
    async with serve(content("Well") + call("slow") + finish("tool_calls")) as suite:
        await ask(suite, ("tool.output", cancels(suite)), record=True)
        lines = await suite.client.cassette(suite.run_ids[0])
    assert read_cassette(lines).events[-1]["type"] == "run.cancel"
    await replay_lines(lines)


async def test_a_replay_repeats_the_errors_of_peers(serve: Serve) -> None:
    broken = [*content("Half an ans"), BREAK]
    async with serve(broken, answer("All of it."), [RateLimited("slow down", retry_after_s=1)]) as suite:
        lines = [await record(suite)]
        assert read_cassette(lines[0]).events[-1]["type"] == "run.complete"
        lines.append(await record(suite))
        assert read_cassette(lines[1]).events[-1]["type"] == "run.error"
    for recorded in lines:
        await replay_lines(recorded)


END = answer("All good.")


async def test_a_recording_has_query_agents_events_calls_and_answers(serve: Serve) -> None:
    turns = [reasoning("hm") + call("look", '{"at":1}') + finish("tool_calls"), answer("All ", "good.")]
    async with serve(*turns) as suite:
        events = await suite.ask("hello", record=True)
        cassette = read_cassette(await suite.client.cassette(suite.run_ids[-1]))
    assert cassette.header["runId"] == suite.run_ids[-1]
    assert cassette.query["message"] == "hello"
    assert cassette.agents["react"]["mode"] == "REACT"
    assert [_without_time(event) for event in cassette.events] == [_without_time(event) for event in events]
    methods = [line.given["method"] for line in cassette.recorder if line.kind == "call"]
    assert methods.count("LlmService/StreamChat") == 2
    assert methods.count("ToolService/Execute") == 1
    assert _list_texts(cassette.recorder) == ["hm", "All ", "good."]


def _list_texts(recorder: list[Any]) -> list[str]:
    messages = [line.given["message"] for line in recorder if line.kind == "answer"]
    return [text for message in messages for text in (message.get("content"), message.get("reasoning")) if text]


async def test_an_agent_may_record_all_its_runs(serve: Serve) -> None:
    async with serve(answer("Yes."), record=True) as suite:
        await suite.ask()
        assert await suite.client.cassette(suite.run_ids[-1])
        await suite.ask(record=False)
        with pytest.raises(NotFound, match="was not recorded"):
            await suite.client.cassette(suite.run_ids[-1])


async def test_a_recording_has_no_secrets(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SERVICE_KEY", "hunter2hunter2")
    async with serve(answer("It is hunter2hunter2 and sk-abcdefgh1234.")) as suite:
        await suite.ask("api_key: verysecret", record=True)
        text = "\n".join(await suite.client.cassette(suite.run_ids[-1]))
    assert not [secret for secret in ("hunter2", "sk-abcd", "verysecret") if secret in text]


async def test_a_running_run_has_no_cassette_yet(serve: Serve) -> None:
    async with serve(call_tool("slow")) as suite:
        async with suite.client.ask("hello", agent_key="react", record=True) as deltas:
            run_id = await anext(delta.run_start.run_id async for delta in deltas if delta.HasField("run_start"))
            with pytest.raises(InvalidRequest, match="must be a run that has ended"):
                await suite.client.cassette(run_id)
            await suite.client.cancel(run_id)
            assert [delta async for delta in deltas][-1].HasField("run_cancel")
        cassette = read_cassette(await suite.client.cassette(run_id))
    assert [line.given["received"] for line in cassette.recorder if line.kind == "received"] == ["AgentService/Cancel"]
    assert cassette.events[-1]["type"] == "run.cancel"


def _without_time(event: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name != "timestamp"}


async def test_line_separators_in_a_text_do_not_split_a_line_of_the_recording(serve: Serve) -> None:
    text = "one\u2028line\u2029of\x85text"
    async with serve(answer(text)) as suite:
        await suite.ask(text, record=True)
        cassette = read_cassette(await suite.client.cassette(suite.run_ids[-1]))
    assert cassette.query["message"] == text
    assert _list_texts(cassette.recorder) == [text]


async def test_pages_of_a_recording_are_limited_in_bytes(serve: Serve) -> None:
    async with (
        serve(*(content("雨" * 200_000) + call("look") + finish("tool_calls") for _ in range(4)), END) as suite,
        open_channel(suite.address) as channel,
    ):
        await suite.ask(record=True)
        lines, token = 0, ""
        get_cassette: Any = agent_pb2_grpc.AgentServiceStub(channel).GetCassette
        while True:
            page = await get_cassette(agent_pb2.GetCassetteRequest(run_id=suite.run_ids[-1], page_token=token or None))
            assert len(page.lines) == 1 or page.ByteSize() <= PAGE_BYTES + 100 * len(page.lines)
            lines, token = lines + len(page.lines), page.next_page_token
            if not token:
                break
        assert lines == len(await suite.client.cassette(suite.run_ids[-1]))


async def test_a_recording_finds_sub_agents_whatever_the_case_of_their_key(serve: Serve) -> None:
    async with serve(answer("Yes."), subagents=["OneShot"]) as suite:
        events = await suite.ask(record=True)
        cassette = read_cassette(await suite.client.cassette(suite.run_ids[-1]))
    assert sorted(cassette.agents) == ["oneshot", "react"]
    assert [event for event in events if event["type"] == "run.notice"] == []
