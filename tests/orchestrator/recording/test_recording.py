"""Recording: what a cassette has of a run, and of which runs there is none."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.cassette.lines import read_cassette
from headrace.errors import InvalidRequest, NotFound
from headrace.v1 import agent_pb2, agent_pb2_grpc
from services.orchestrator.lifecycle.live_calls.cassette_rpc import PAGE_BYTES
from services.runtime.rpc.channels import open_channel
from tests.support.orchestrator import Serve
from tests.support.orchestrator.steps import answer, call, call_tool, content, finish, reasoning

END = answer("All good.")


async def test_a_recorded_run_has_all_that_it_heard_and_said(serve: Serve) -> None:
    turns = [reasoning("hm") + call("look", '{"at":1}') + finish("tool_calls"), answer("All ", "good.")]
    async with serve(*turns) as h:
        events = await h.ask("hello", record=True)
        cassette = read_cassette(await h.client.cassette(h.run_ids[-1]))
    assert cassette.header["runId"] == h.run_ids[-1]
    assert cassette.query["message"] == "hello"
    assert cassette.agents["react"]["mode"] == "REACT"
    assert [_without_time(event) for event in cassette.events] == [_without_time(event) for event in events]
    methods = [line.given["method"] for line in cassette.tape if line.kind == "call"]
    assert methods.count("LlmService/StreamChat") == 2
    assert methods.count("ToolService/Execute") == 1
    assert _said(cassette.tape) == ["hm", "All ", "good."]


def _said(tape: list[Any]) -> list[str]:
    messages = [line.given["message"] for line in tape if line.kind == "answer"]
    return [text for message in messages for text in (message.get("content"), message.get("reasoning")) if text]


async def test_an_agent_may_have_all_its_runs_recorded(serve: Serve) -> None:
    async with serve(answer("Yes."), record=True) as h:
        await h.ask()
        assert await h.client.cassette(h.run_ids[-1])
        await h.ask(record=False)
        with pytest.raises(NotFound, match="was not recorded"):
            await h.client.cassette(h.run_ids[-1])


async def test_secrets_do_not_enter_a_recording(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SERVICE_KEY", "hunter2hunter2")
    async with serve(answer("It is hunter2hunter2 and sk-abcdefgh1234.")) as h:
        await h.ask("api_key: verysecret", record=True)
        text = "\n".join(await h.client.cassette(h.run_ids[-1]))
    assert not [secret for secret in ("hunter2", "sk-abcd", "verysecret") if secret in text]


async def test_a_run_that_goes_on_has_no_cassette_yet(serve: Serve) -> None:
    async with serve(call_tool("slow")) as h:
        async with h.client.ask("hello", agent_key="react", record=True) as deltas:
            run_id = await anext(delta.run_start.run_id async for delta in deltas if delta.HasField("run_start"))
            with pytest.raises(InvalidRequest, match="must be a run that has ended"):
                await h.client.cassette(run_id)
            await h.client.cancel(run_id)
            assert [delta async for delta in deltas][-1].HasField("run_cancel")
        cassette = read_cassette(await h.client.cassette(run_id))
    assert [line.given["received"] for line in cassette.tape if line.kind == "received"] == ["AgentService/Cancel"]
    assert cassette.events[-1]["type"] == "run.cancel"


def _without_time(event: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name != "timestamp"}


async def test_a_line_of_a_recording_is_one_line_whatever_was_said(serve: Serve) -> None:
    said = "one\u2028line\u2029of\x85text"
    async with serve(answer(said)) as h:
        await h.ask(said, record=True)
        cassette = read_cassette(await h.client.cassette(h.run_ids[-1]))
    assert cassette.query["message"] == said
    assert _said(cassette.tape) == [said]


async def test_a_page_of_a_recording_is_counted_in_bytes(serve: Serve) -> None:
    async with (
        serve(*(content("雨" * 200_000) + call("look") + finish("tool_calls") for _ in range(4)), END) as h,
        open_channel(h.address) as channel,
    ):
        await h.ask(record=True)
        lines, token = 0, ""
        get_cassette: Any = agent_pb2_grpc.AgentServiceStub(channel).GetCassette
        while True:
            page = await get_cassette(agent_pb2.GetCassetteRequest(run_id=h.run_ids[-1], page_token=token or None))
            assert len(page.lines) == 1 or page.ByteSize() <= PAGE_BYTES + 100 * len(page.lines)
            lines, token = lines + len(page.lines), page.next_page_token
            if not token:
                break
        assert lines == len(await h.client.cassette(h.run_ids[-1]))


async def test_agents_below_a_recorded_one_are_found_by_any_case_of_their_key(serve: Serve) -> None:
    async with serve(answer("Yes."), subagents=["OneShot"]) as h:
        events = await h.ask(record=True)
        cassette = read_cassette(await h.client.cassette(h.run_ids[-1]))
    assert sorted(cassette.agents) == ["oneshot", "react"]
    assert [event for event in events if event["type"] == "run.notice"] == []


async def test_a_reverted_run_has_no_recording_for_anybody(serve: Serve) -> None:
    async with serve(answer("Yes.")) as h:
        await h.ask(record=True)
        assert await h.client.cassette(h.run_ids[-1])
        await h.client.revert(h.chat_id, 0)
        with pytest.raises(NotFound, match="reverted"):
            await h.client.cassette(h.run_ids[-1])
