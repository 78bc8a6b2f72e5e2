"""What the interceptors do around an RPC, whatever its handler and its caller do. Callers read without `reading` if
they must be able to leave in their own way.
"""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from headrace.errors import InvalidRequest, NotFound, Overloaded, StreamStalled, from_rpc_error
from headrace.streams import reading, rpc_errors
from headrace.v1 import llm_pb2, llm_pb2_grpc, tools_pb2, tools_pb2_grpc
from services.runtime.auth.settings import AuthSettings
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import open_channel
from services.runtime.rpc.server import GrpcService, serving_grpc
from tests.support.http2.ends import code_of
from tests.support.logged import Logged
from tests.support.scripted_llm import (
    COUNT,
    REQUEST,
    SILENCE_S,
    TEST_TIMEOUT_S,
    ScriptedLlm,
    Suite,
    build_service,
    read,
    serving_script,
)
from tests.support.timing import within

pytestmark = pytest.mark.usefixtures("quiet")

CHAT = "00000000-0000-4000-8000-000000000001"
TOKEN = "0123456789abcdef" * 2
FOR_ADA = (("x-headrace-tenant", "acme"), ("x-headrace-user", "ada"))
FLOOD = itertools.repeat("x" * 100_000)


async def wait_for_rpc_done(logged: Logged) -> None:
    async with within(0.5):
        while not logged.named("rpc done"):
            await asyncio.sleep(0.005)


async def test_a_call_is_one_log_line_with_its_properties(logged: Logged) -> None:
    async with serving_script(["a", "b"]) as suite:
        async with reading(suite.stub.StreamChat(REQUEST)) as deltas:
            assert [delta.content async for delta in deltas] == ["a", "b"]
        await wait_for_rpc_done(logged)
    line = logged.done
    assert (line["method"], line["code"], line["replies"]) == ("/headrace.v1.LlmService/StreamChat", "OK", 2)
    assert line["peer"].startswith(("ipv4:127.0.0.1:", "local:"))
    assert line["ms"] >= 0


@pytest.mark.parametrize(
    ("token", "metadata", "level"),
    [
        ("", (), "info"),
        ("", FOR_ADA, "debug"),
        (TOKEN, (), "info"),
        (TOKEN, FOR_ADA, "info"),
        (TOKEN, (*FOR_ADA, ("x-headrace-caller", "memory"), ("x-headrace-token", TOKEN)), "debug"),
    ],
)
async def test_calls_between_services_are_logged_at_debug_level(
    token: str, metadata: Any, level: str, logged: Logged
) -> None:
    settings = ServerSettings(listen="127.0.0.1:0", auth=AuthSettings(internal_token=token))
    service = build_service(ScriptedLlm([]))  # pyright: ignore[reportAbstractUsage] - as in serving_script
    async with serving_grpc(settings, [service]) as running, grpc.aio.insecure_channel(running.addresses[0]) as channel:
        with contextlib.suppress(grpc.aio.AioRpcError):  # which a client may not call
            await llm_pb2_grpc.LlmServiceStub(channel).CountTokens(COUNT, metadata=metadata)
        await wait_for_rpc_done(logged)
    assert logged.done["log_level"] == level


async def test_our_error_reaches_a_unary_caller_and_is_not_logged_as_an_error(logged: Logged) -> None:
    async with serving_script([NotFound("no such model", model="m")]) as suite:
        with pytest.raises(NotFound, match=r"^no such model$") as caught, rpc_errors():
            await suite.stub.CountTokens(COUNT)
        assert caught.value.metadata == {"model": "m"}
        await wait_for_rpc_done(logged)
    assert logged.done["code"] == "NOT_FOUND"


async def test_the_longest_error_is_transferred() -> None:
    async with serving_script(
        [StreamStalled("🧭" * 5000, retry_after_s=1, requestId="🧭" * 20, other="x" * 5000)]
    ) as suite:
        with pytest.raises(StreamStalled, match=r"^🧭+…$"), rpc_errors():
            await suite.stub.CountTokens(COUNT)


@pytest.mark.parametrize("steps", [[KeyError("the secret")], ["a", KeyError("the secret")]])
async def test_a_bug_becomes_internal_without_its_text_and_one_traceback(steps: Any, logged: Logged) -> None:
    contents: list[str] = []
    async with serving_script(steps) as suite:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await read(suite.stub.StreamChat(REQUEST), contents)
        assert contents == [step for step in steps if isinstance(step, str)]
        assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.INTERNAL, "internal error")
        assert "secret" not in str(caught.value.trailing_metadata())
        await wait_for_rpc_done(logged)
    (failed,) = logged.named("rpc failed")
    assert failed["exc_info"]
    assert failed["request_id"] == logged.done["request_id"]
    assert logged.done["code"] == "INTERNAL"
    assert logged.take_errors() == [failed]


@pytest.mark.parametrize(
    ("steps", "reads"),
    [(["first", SILENCE_S], 1), (FLOOD, 1), (itertools.repeat("x"), 100)],
    ids=["silent", "unable to write", "in full flow"],
)
async def test_a_caller_that_cancels_is_no_error(steps: Any, reads: int, logged: Logged) -> None:
    async with serving_script(steps) as suite:
        async with reading(suite.stub.StreamChat(REQUEST)) as deltas:
            for _ in range(reads):
                await anext(deltas)
            await asyncio.sleep(0.1 if steps is FLOOD else 0)
        await check_cancelled(suite, logged)


@pytest.mark.parametrize("steps", [[SILENCE_S], FLOOD])
async def test_a_deadline_ends_the_handler_and_is_no_error(steps: Any, logged: Logged) -> None:
    async with serving_script(steps) as suite:
        call = suite.stub.StreamChat(REQUEST, timeout=0.15)
        assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await check_cancelled(suite, logged)


async def test_a_unary_caller_that_cancels_ends_the_handler(logged: Logged) -> None:
    async with serving_script([SILENCE_S]) as suite:
        call = suite.stub.CountTokens(COUNT)
        await suite.llm.opened.wait()
        call.cancel()
        await check_cancelled(suite, logged)


async def check_cancelled(suite: Suite, logged: Logged) -> None:
    """Check that the handler ended in its own task, soon, and that the log has one line for the cancelled call."""
    await suite.wait_closed()
    assert suite.llm.closed_in is suite.llm.opened_in
    await wait_for_rpc_done(logged)
    assert logged.done["code"] == "CANCELLED"
    assert logged.done["peer"]
    assert suite.running.interceptor.streams == 0


async def test_a_handler_that_fails_while_its_caller_cancels_harms_nobody(logged: Logged) -> None:
    async with serving_script(["first", 0.05, Overloaded("too late")]) as suite:
        async with reading(suite.stub.StreamChat(REQUEST)) as deltas:
            await anext(deltas)
            await asyncio.sleep(0.048)
        await wait_for_rpc_done(logged)
    assert logged.done["code"] in ("CANCELLED", "UNAVAILABLE")


async def test_a_stream_over_the_limit_is_refused_until_a_place_is_free() -> None:
    async with (
        serving_script(["a", SILENCE_S], streams_max=2) as suite,
        reading(suite.stub.StreamChat(REQUEST)) as first,
    ):
        await anext(first)
        async with reading(suite.stub.StreamChat(REQUEST)) as second:
            await anext(second)
            assert suite.running.interceptor.streams == 2
            with pytest.raises(Overloaded, match="2 streams are open already"):
                await read(suite.stub.StreamChat(REQUEST), [])
            suite.llm.closed.clear()
        await suite.wait_closed()
        await asyncio.sleep(0.01)
        async with reading(suite.stub.StreamChat(REQUEST)) as third:
            assert (await anext(third)).content == "a"


@pytest.mark.parametrize("method", ["ListModels", "NobodyKnows"])
async def test_an_unimplemented_or_unknown_method_is_unimplemented(method: str) -> None:
    async with serving_script() as suite, open_channel(suite.running.addresses[0]) as channel:
        call = channel.unary_unary(f"/headrace.v1.LlmService/{method}")
        assert await code_of(call(b"")) is grpc.StatusCode.UNIMPLEMENTED


async def test_a_peers_status_is_passed_on() -> None:
    peer_error = grpc.aio.AioRpcError(
        grpc.StatusCode.DEADLINE_EXCEEDED, grpc.aio.Metadata(), grpc.aio.Metadata(), "Deadline Exceeded"
    )
    async with serving_script([peer_error]) as suite:
        assert await code_of(suite.stub.CountTokens(COUNT)) is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_ids_of_the_caller_are_logged_and_forwarded(logged: Logged) -> None:
    given = (("x-request-id", "req-1"), ("traceparent", "00-abc-def-01"), ("other", "x"))
    async with serving_script() as suite:
        await suite.stub.CountTokens(COUNT, metadata=given)
        await wait_for_rpc_done(logged)
        assert suite.llm.forwarded == given[:2]
    assert logged.done["request_id"] == "req-1"


@pytest.mark.parametrize("unsafe", ["", "a b", 'x" y', "x" * 129, "{}"])
async def test_an_unsafe_request_id_is_replaced(unsafe: str, logged: Logged) -> None:
    async with serving_script() as suite:
        await suite.stub.CountTokens(COUNT, metadata=(("x-request-id", unsafe),))
        await wait_for_rpc_done(logged)
        assert dict(suite.llm.forwarded) == {"x-request-id": logged.done["request_id"]}
    assert len(logged.done["request_id"]) == 36


async def test_ids_are_not_kept_for_the_next_call(logged: Logged) -> None:
    async with serving_script() as suite:
        await suite.stub.CountTokens(COUNT, metadata=(("x-request-id", "one"), ("traceparent", "00-a-b-01")))
        await suite.stub.CountTokens(COUNT)
        assert [name for name, _ in suite.llm.forwarded] == ["x-request-id"]
        assert suite.llm.forwarded[0][1] != "one"


async def test_rules_are_checked_before_the_handler_runs() -> None:
    async with serving_script() as suite:
        for call in (
            suite.stub.CountTokens(llm_pb2.CountTokensRequest()),
            suite.stub.StreamChat(llm_pb2.ChatRequest()),
        ):
            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
        with pytest.raises(InvalidRequest, match="providerKey: is required"), rpc_errors():
            await suite.stub.CountTokens(llm_pb2.CountTokensRequest())
        assert not suite.llm.opened.is_set()


class Uploads(tools_pb2_grpc.ToolServiceServicer):
    """Takes uploads and counts their bytes."""

    async def UploadFile(self, request_iterator: AsyncIterator[Any], context: Any) -> tools_pb2.UploadFileResponse:
        size = 0
        async for part in request_iterator:
            size += len(part.data)
        return tools_pb2.UploadFileResponse(chat_id=str(size))


async def test_each_message_of_a_client_stream_is_checked() -> None:
    uploads = Uploads()  # pyright: ignore[reportAbstractUsage] - the one RPC that is called
    grpc_service = GrpcService("headrace.v1.ToolService", uploads, tools_pb2_grpc.add_ToolServiceServicer_to_server)
    good = tools_pb2.UploadFileRequest(start=tools_pb2.UploadStart(chat_id=CHAT, name="a.txt"))
    bad = tools_pb2.UploadFileRequest(start=tools_pb2.UploadStart(chat_id="../../x", name="a.txt"))
    data = tools_pb2.UploadFileRequest(data=b"12345")
    async with (
        asyncio.timeout(TEST_TIMEOUT_S),
        serving_grpc(ServerSettings(listen="127.0.0.1:0", drain_s=0), [grpc_service]) as running,
        open_channel(running.addresses[0]) as channel,
    ):
        upload = tools_pb2_grpc.ToolServiceStub(channel).UploadFile
        assert (await upload(iter([good, data, data]))).chat_id == "10"
        for parts in ([bad, data], [good, data, bad]):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await upload(iter(parts))
            refused = from_rpc_error(caught.value)
            assert isinstance(refused, InvalidRequest)
            assert refused.metadata == {"field": "start.chatId", "rule": "must be a UUID in lower case"}
