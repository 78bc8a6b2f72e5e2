"""The client for programs without an event loop, over real sockets and over grpcio-testing's channel."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Semaphore, Thread
from typing import Any, TypeVar

import grpc
import grpc_testing  # pyright: ignore[reportMissingTypeStubs]
import pytest

from headrace.errors import ChatBusy, InvalidRequest, Overloaded, ProviderUnavailable
from headrace.sync.client import Client
from headrace.v1 import agent_pb2
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.server import serving_grpc
from tests.support.facade.scripted import (
    CHAT,
    RUN,
    Script,
    ScriptedMemory,
    ScriptedTools,
    answering,
    complete,
    make_peer_services,
    opening,
)

AGENTS: Any = agent_pb2.DESCRIPTOR.services_by_name["AgentService"]
Outcome = TypeVar("Outcome")


@asynccontextmanager
async def server(
    folder: Path, script: Script, tools: ScriptedTools | None = None
) -> AsyncGenerator[Callable[[], Client]]:
    address = f"unix:{folder}/s.sock"
    async with (
        asyncio.timeout(100),
        serving_grpc(ServerSettings(listen=address, drain_s=0), make_peer_services(script, ScriptedMemory(), tools)),
    ):
        yield lambda: Client(address, memory_address=address, tools_address=address)


async def test_a_run_is_read_as_text_and_folded(tmp_path: Path) -> None:
    script = Script(query=answering("two ", "words"))

    def ask(client: Client) -> tuple[list[str], str]:
        with client, client.ask("hi", agent_key="helper", chat_id=CHAT) as run:
            return list(run.text()), run.state.answer

    async with server(tmp_path, script) as open_client:
        assert await asyncio.to_thread(ask, open_client()) == (["two ", "words"], "two words")
    assert (script.requests[0].message, script.requests[0].agent_key) == ("hi", "helper")


async def test_a_cut_stream_resumes_after_its_last_event(tmp_path: Path) -> None:
    whole: list[Any] = answering("one ", "two ", "three")
    script = Script(query=[*whole[:5], ProviderUnavailable("restarting")])
    script.attaches = [[Overloaded("draining")], whole[5:6], whole[6:]]

    def ask(client: Client) -> tuple[list[int], str]:
        with client, client.ask("hi") as run:
            return [event.seq for event in run], run.state.answer

    async with server(tmp_path, script) as open_client:
        seqs, answer = await asyncio.to_thread(ask, open_client())
    assert (seqs, answer) == ([*range(1, 10)], "one two three")
    assert [(request.run_id, request.last_seq) for request in script.requests[1:]] == [(RUN, 5), (RUN, 5), (RUN, 6)]


@pytest.mark.parametrize("steps", [[ChatBusy("busy")], [*opening(), ChatBusy("busy")]], ids=["before", "behind"])
async def test_an_error_is_typed_before_and_after_the_first_event(tmp_path: Path, steps: list[Any]) -> None:
    def ask(client: Client) -> None:
        with client, client.ask("hi") as run:
            for _ in run:
                pass

    async with server(tmp_path, Script(query=steps)) as open_client:
        with pytest.raises(ChatBusy):
            await asyncio.to_thread(ask, open_client())


async def test_leaving_early_cancels_the_call(tmp_path: Path) -> None:
    script = Script(query=[*opening(), asyncio.Event()])

    def ask(client: Client) -> None:
        with client, client.ask("hi") as run:
            next(run)

    async with server(tmp_path, script) as open_client:
        await asyncio.to_thread(ask, open_client())
        await script.closed.wait()


async def test_unary_calls_reach_their_rpcs(tmp_path: Path) -> None:
    script, tools = Script(attaches=[[complete(9)]]), ScriptedTools()
    data = bytes(range(256)) * 4096

    def call(client: Client) -> None:
        with client:
            with client.attach(RUN, 8) as run:
                assert [event.seq for event in run] == [9]
            assert client.submit(RUN, "{}", tool_id="t").accepted
            assert [agent.key for agent in client.agents()] == ["helper"]
            assert client.chats().chats[0].chat_id == CHAT
            assert client.upload("a.png", data).reference.name == "a.png"
            with pytest.raises(InvalidRequest, match="runId"):
                client.cancel("nonsense")

    async with server(tmp_path, script, tools) as open_client:
        await asyncio.to_thread(call, open_client())
    [(_, stored)] = tools.uploaded
    assert stored == data


def test_a_server_that_cannot_be_reached_is_provider_unavailable(tmp_path: Path) -> None:
    with Client(f"unix:{tmp_path}/nobody") as client, pytest.raises(ProviderUnavailable, match="nothing listens"):
        client.agents()


def over_testing(ask: Callable[[Client], Outcome], play: Callable[[Any], None]) -> Outcome:
    """Run `ask` with a client on grpcio-testing's channel, whose server side `play` controls."""
    channel = grpc_testing.channel([AGENTS], grpc_testing.strict_real_time())
    player = Thread(target=play, args=(channel,), daemon=True)
    player.start()
    with Client(channel=channel) as client:
        outcome = ask(client)
    player.join(100)
    assert not player.is_alive()
    return outcome


def test_the_client_works_over_grpcio_testings_channel() -> None:
    events = [event for event in answering("a", "b") if isinstance(event, agent_pb2.AgentDelta)]
    read = Semaphore(0)

    def ask(client: Client) -> str:
        with client.ask("hi") as run:
            for _ in run:
                read.release()
            return run.state.answer

    def play(channel: Any) -> None:
        _, request, query = channel.take_unary_stream(AGENTS.methods_by_name["Query"])
        assert request.message == "hi"
        query.send_initial_metadata(())
        for event in events[:-2]:
            query.send_response(event)
            read.acquire()  # what is unread when it ends is lost here
        query.terminate((), grpc.StatusCode.UNAVAILABLE, "cut")
        _, request, attach = channel.take_unary_stream(AGENTS.methods_by_name["Attach"])
        assert (request.run_id, request.last_seq) == (RUN, events[-3].seq)
        attach.send_initial_metadata(())
        for event in events[-2:]:
            attach.send_response(event)
        attach.terminate((), grpc.StatusCode.OK, "")

    assert over_testing(ask, play) == "ab"


async def test_the_client_may_be_used_in_a_thread_with_a_running_loop() -> None:
    test_the_client_works_over_grpcio_testings_channel()


def test_a_foreign_status_over_grpcio_testings_channel_is_raised_unchanged() -> None:
    def ask(client: Client) -> str:
        try:
            client.agents()
        except grpc.RpcError as error:
            return type(error).__name__
        return ""

    def play(channel: Any) -> None:
        _, _, listing = channel.take_unary_unary(AGENTS.methods_by_name["ListAgents"])
        listing.send_initial_metadata(())
        listing.terminate(None, (), grpc.StatusCode.ABORTED, "what?")

    assert over_testing(ask, play), "it stays what it is"
