"""The client against a scripted orchestrator and memory, over a Unix socket."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headrace.client import Client
from headrace.errors import ChatBusy, InvalidRequest, NotFound, Overloaded, ProviderUnavailable, StaleLease
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.server import serving_grpc
from tests.support.facade.scripted import (
    CHAT,
    RUN,
    Script,
    ScriptedMemory,
    ScriptedTools,
    Step,
    answering,
    complete,
    make_peer_services,
    opening,
    text,
)


@asynccontextmanager
async def client(folder: Path, script: Script, tools: ScriptedTools | None = None) -> AsyncGenerator[Client]:
    address = f"unix:{folder}/s.sock"
    settings = ServerSettings(listen=address, drain_s=0)
    async with (
        asyncio.timeout(100),
        serving_grpc(settings, make_peer_services(script, ScriptedMemory(), tools)),
        Client(address, memory_address=address, tools_address=address) as opened,
    ):
        yield opened


async def test_ask_gives_every_delta_in_order(tmp_path: Path) -> None:
    script = Script(query=answering("a", "\n\n"))
    async with (
        client(tmp_path, script) as headrace,
        headrace.ask("hi", agent_key="helper", chat_id=CHAT, params='{"a":1}') as deltas,
    ):
        assert [delta async for delta in deltas] == script.query
    request = script.requests[0]
    assert (request.message, request.agent_key, request.params) == ("hi", "helper", '{"a":1}')
    assert not request.HasField("when_busy")


async def test_a_token_is_stripped_and_an_invalid_one_is_refused_without_showing_it() -> None:
    async with Client("127.0.0.1:1", token=" abc\n") as headrace:
        with pytest.raises(ProviderUnavailable):
            await headrace.identity()
    for token in ("ab\ncd", "ab’cd"):
        with pytest.raises(ValueError, match="token: has a character that no credential has") as caught:
            Client("127.0.0.1:1", token=token)
        assert "ab" not in str(caught.value)


async def test_an_uploaded_file_can_be_referenced_in_a_question(tmp_path: Path) -> None:
    script, tools = Script(query=answering("a dot")), ScriptedTools()
    data = bytes(range(256)) * 4096
    async with client(tmp_path, script, tools) as headrace:
        uploaded = await headrace.upload("a.png", data)
        async with headrace.ask("?", chat_id=uploaded.chat_id, references=[uploaded.reference]) as deltas:
            assert [delta async for delta in deltas] == script.query
        tools.refused = InvalidRequest.of("file", "is too large")
        with pytest.raises(InvalidRequest):
            await headrace.upload("b.png", data, chat_id=uploaded.chat_id)
    ((start, stored),) = tools.uploaded
    assert (start.name, start.size_bytes, stored) == ("a.png", len(data), data)
    assert script.requests[0].references[0].name == "a.png"


@pytest.mark.parametrize("before", [[], [text(1, "a")]], ids=["before", "behind"])
async def test_an_error_is_typed_before_and_after_the_first_event(tmp_path: Path, before: list[Step]) -> None:
    received: list[Step] = []

    async def read(headrace: Client) -> None:
        async with headrace.ask("hi") as deltas:
            async for delta in deltas:
                received.append(delta)

    async with client(tmp_path, Script(query=[*before, ChatBusy("busy", runId=RUN)])) as headrace:
        with pytest.raises(ChatBusy) as caught:
            await read(headrace)
    assert (received, caught.value.metadata) == (before, {"runId": RUN})


async def test_a_cut_stream_resumes_after_its_last_event(tmp_path: Path) -> None:
    whole = answering("one ", "two ", "three")
    script = Script(query=[*whole[:5], ProviderUnavailable("restarting")])
    script.attaches = [[Overloaded("draining")], whole[5:6], whole[6:]]
    async with client(tmp_path, script) as headrace, headrace.ask("hi") as run:
        assert [event async for event in run] == whole
    assert [(request.run_id, request.last_seq) for request in script.requests[1:]] == [(RUN, 5), (RUN, 5), (RUN, 6)]


async def test_a_stream_that_stays_cut_ends_with_the_original_error(tmp_path: Path) -> None:
    script = Script(query=[*opening(), ProviderUnavailable("restarting")])
    async with client(tmp_path, script):
        impatient = Client(f"unix:{tmp_path}/s.sock", reattach_s=0)
        async with impatient, impatient.ask("hi") as run:
            with pytest.raises(ProviderUnavailable, match="restarting"):
                assert [event async for event in run] == []
    assert len(script.requests) == 1


async def test_an_attached_stream_that_breaks_at_once_is_reopened_at_its_position(tmp_path: Path) -> None:
    script = Script(attaches=[[ProviderUnavailable("restarting")], [complete(9)]])
    async with client(tmp_path, script) as headrace, headrace.attach(RUN, 8) as run:
        assert [event.seq async for event in run] == [9]
    assert [request.last_seq for request in script.requests] == [8, 8]


async def test_text_of_a_run_attached_in_its_middle_is_refused(tmp_path: Path) -> None:
    """It cannot know which part of a block that started earlier the caller has already read."""
    script = Script(attaches=[[text(8, "two"), complete(9)]])
    async with client(tmp_path, script) as headrace, headrace.attach(RUN, 7) as run:
        with pytest.raises(ValueError, match="without last_seq"):
            await anext(run.text())


async def test_leaving_early_cancels_the_call(tmp_path: Path) -> None:
    script = Script(query=[*opening(), asyncio.Event()])
    async with client(tmp_path, script) as headrace:
        async with headrace.ask("hi") as deltas:
            await anext(deltas)
        await script.closed.wait()


async def test_leaving_many_events_unread_cancels_the_call(tmp_path: Path) -> None:
    script = Script(query=[text(1, "x" * 100_000)] * 2_000)
    async with client(tmp_path, script) as headrace:
        async with headrace.ask("hi") as deltas:
            await anext(deltas)
            await asyncio.sleep(0.2)
        await script.closed.wait()
    assert script.sent < 1_000


async def test_attach_submit_cancel_and_lists_reach_their_rpcs(tmp_path: Path) -> None:
    script = Script(attaches=[[complete(9)]])
    async with client(tmp_path, script) as headrace:
        async with headrace.attach(RUN, 8) as deltas:
            assert [delta.seq async for delta in deltas] == [9]
        assert (await headrace.submit(RUN, "{}", tool_id="t")).accepted
        assert (await headrace.cancel(RUN)).state == "running"
        assert [agent.key for agent in await headrace.agents()] == ["helper"]
        assert [problem.file for problem in await headrace.agent_problems()] == ["clerk.json"]
        assert (await headrace.identity()).user == "ada"
        assert (await headrace.chats()).chats[0].chat_id == CHAT
        await headrace.chat(CHAT)
    assert script.requests[0].last_seq == 8


async def test_a_server_that_cannot_be_reached_is_provider_unavailable(tmp_path: Path) -> None:
    async with asyncio.timeout(100), Client(f"unix:{tmp_path}/nobody") as headrace:
        with pytest.raises(ProviderUnavailable):
            await headrace.agents()
        with pytest.raises(ProviderUnavailable):
            async with headrace.ask("hi") as deltas:
                await anext(deltas)


async def test_a_chat_is_reverted_and_its_state_updated(tmp_path: Path) -> None:
    async with client(tmp_path, Script()) as headrace:
        listed = await headrace.checkpoints(CHAT, kind="query")
        last = listed.checkpoints[0]
        assert (last.checkpoint_id, last.n, last.text) == (2, 4, "and\nnow?")
        assert await headrace.revert(CHAT, 2, n=4) == 9
        with pytest.raises(NotFound):
            await headrace.revert(CHAT, 9)
        state = await headrace.state(CHAT)
        assert (state.version, state.state) == (0, "{}")
        assert await headrace.update_state(CHAT, '{"a":1}', state.version) == 1
        with pytest.raises(StaleLease):
            await headrace.update_state(CHAT, "{}", state.version)


async def test_chats_are_copied_searched_and_deleted(tmp_path: Path) -> None:
    async with client(tmp_path, Script()) as headrace:
        assert await headrace.fork(CHAT, run_id=RUN) == f"fork of {CHAT} {RUN}"
        (hit,) = await headrace.search("boat", scope="chats", limit=3)
        assert (hit.chat_id, hit.excerpt) == (CHAT, "boat chats 3")
        await headrace.delete_chat(CHAT)


async def test_facts_are_edited_deleted_and_exported(tmp_path: Path) -> None:
    async with client(tmp_path, Script()) as headrace:
        fact = await headrace.remember("My boat is Ada.", topic="boat")
        edited = await headrace.edit_fact(fact.fact_id, text="My boat is Eva.")
        assert (edited.text, edited.topic) == ("My boat is Eva.", "boat")
        assert (await headrace.edit_fact(fact.fact_id, topic="")).topic == ""
        assert [hit.fact.text for hit in await headrace.recall("boat")] == ["My boat is Eva."]
        other = await headrace.remember("Lives in Oslo.")
        await headrace.delete_fact(fact.fact_id)
        exported = [exported async for exported in headrace.export_facts()]
    assert [(fact.fact_id, fact.text) for fact in exported] == [(fact.fact_id, ""), (other.fact_id, "Lives in Oslo.")]
