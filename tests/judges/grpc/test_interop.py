"""grpc's interop cases and normal load: grpc-go's client calls our server, and our client calls grpc-go's server."""

import asyncio
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.runtime.http2.server.server import Server
from services.runtime.process.transport import Certificates
from tests.judges.grpc.interop_service import ECHO_INITIAL, ECHO_TRAILING, SERVICE, Contract, InteropService
from tests.support.authority import Authority, Files
from tests.support.http2.channel import Channel
from tests.support.programs import run_to_end, starting
from trials.grpc_load.clients import CLIENTS
from trials.grpc_load.runs import Load, run_load

TEST_TIMEOUT_S = 100.0
BYTES_MAX = 4 * 1024 * 1024

CLIENTS_CASES = (
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "timeout_on_sleeping_server",
    "cancel_after_begin",
    "cancel_after_first_response",
    "status_code_and_message",
    "special_status_message",
    "custom_metadata",
    "unimplemented_method",
    "unimplemented_service",
    "rpc_soak",
    "channel_soak",
)
"""All that need neither credentials of a cloud nor load reports (ORCA), which we do not have."""


secured = pytest.mark.parametrize("is_secured", [False, True], ids=["plain", "mutual TLS"])


@pytest.fixture
def files(is_secured: bool, tmp_path: Path) -> Files | None:
    """Return the certificate, key and CA of both ends; None without TLS."""
    return Authority(tmp_path).issue("judge") if is_secured else None


@asynccontextmanager
async def serving(
    service: InteropService, files: Files | None = None, connection_age_s: float = 0.0
) -> AsyncGenerator[str]:
    server = Server(message_bytes_max=BYTES_MAX, connection_age_s=connection_age_s)
    service.add_to(server)
    context = None if files is None else Certificates(files.cert, files.key, files.ca).make_server_context()
    port = server.add_port("127.0.0.1:0", context)
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


def list_paths(files: Files | None) -> tuple[str, ...]:
    return () if files is None else (files.cert, files.key, files.ca)


async def run_case(judge: Path, address: str, case: str, files: Files | None = None) -> None:
    code, output, _ = await run_to_end(judge, "client", address, case, *list_paths(files), stderr=STDOUT)
    assert code == 0, output.decode()


@secured
@pytest.mark.parametrize("case", CLIENTS_CASES)
async def test_our_server_passes_grpc_gos_client_cases(
    judge: Path, contract: Contract, case: str, files: Files | None
) -> None:
    async with asyncio.timeout(TEST_TIMEOUT_S), serving(InteropService(contract), files) as address:
        await run_case(judge, address, case, files)


async def test_grpc_gos_calls_survive_connections_closed_for_their_age(judge: Path, contract: Contract) -> None:
    service = InteropService(contract)
    async with asyncio.timeout(TEST_TIMEOUT_S), serving(service, connection_age_s=0.005) as address:
        await run_case(judge, address, "rpc_soak")
    assert len(service.peers) > 1


# Our client.

REQUEST_SIZES, RESPONSE_SIZES = (27_182, 8, 1_828, 45_904), (31_415, 9, 2_653, 58_979)
LARGE_REQUEST, LARGE_RESPONSE = 271_828, 314_159
METADATA = ((ECHO_INITIAL, "test_initial_metadata_value"), (ECHO_TRAILING, b"\x0a\x0b\x0a\x0b\x0a\x0b"))
SPECIAL_MESSAGE = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n"


class Caller:
    """TestService's methods over our channel."""

    def __init__(self, contract: Contract, channel: grpc.aio.Channel) -> None:
        self._contract = contract
        self._channel = channel

    def call(self, name: str, *arguments: Any, service: str = SERVICE, **options: Any) -> Any:
        method = self._contract.methods[name]
        kinds: dict[tuple[bool, bool], Any] = {
            (False, False): self._channel.unary_unary,
            (False, True): self._channel.unary_stream,
            (True, False): self._channel.stream_unary,
            (True, True): self._channel.stream_stream,
        }
        multicallable = kinds[method.client_streaming, method.server_streaming](
            f"/{service}/{name}",
            request_serializer=self._contract.get_class(method.input_type.name).SerializeToString,
            response_deserializer=self._contract.get_class(method.output_type.name).FromString,
        )
        return multicallable(*arguments, **options)

    def make_simple(self, request_size: int, response_size: int) -> Any:
        payload = self._contract.make_payload(request_size)
        return self._contract.make("SimpleRequest", response_size=response_size, payload=payload)

    def make_streamed(self, request_size: int, *response_sizes: int) -> Any:
        parameters = [self._contract.make("ResponseParameters", size=size) for size in response_sizes]
        payload = self._contract.make_payload(request_size)
        return self._contract.make("StreamingOutputCallRequest", response_parameters=parameters, payload=payload)

    def make_upload(self, size: int) -> Any:
        return self._contract.make("StreamingInputCallRequest", payload=self._contract.make_payload(size))

    def make_failing(self, kind: str, code: int, message: str) -> Any:
        return self._contract.make(kind, response_status=self._contract.make("EchoStatus", code=code, message=message))

    def make_empty(self) -> Any:
        return self._contract.make("Empty")


@asynccontextmanager
async def calling(judge: Path, contract: Contract, files: Files | None = None) -> AsyncGenerator[Caller]:
    """Yield a caller of grpc-go's server."""
    context = None if files is None else Certificates(files.cert, files.key, files.ca).get_client_context
    async with starting(judge, "serve", *list_paths(files), stdout=PIPE) as server:
        assert server.stdout is not None
        address = (await server.stdout.readline()).decode().strip()
        async with Channel(address, message_bytes_max=BYTES_MAX, context=context) as channel:
            yield Caller(contract, channel)


async def read_status(call: Any) -> tuple[grpc.StatusCode, str]:
    return await call.code(), await call.details()


async def empty_unary(caller: Caller) -> None:
    assert await caller.call("EmptyCall", caller.make_empty()) == caller.make_empty()


async def large_unary(caller: Caller) -> None:
    answer = await caller.call("UnaryCall", caller.make_simple(LARGE_REQUEST, LARGE_RESPONSE))
    assert answer.payload.body == bytes(LARGE_RESPONSE)


async def client_streaming(caller: Caller) -> None:
    answer = await caller.call("StreamingInputCall", iter([caller.make_upload(size) for size in REQUEST_SIZES]))
    assert answer.aggregated_payload_size == sum(REQUEST_SIZES)


async def server_streaming(caller: Caller) -> None:
    call = caller.call("StreamingOutputCall", caller.make_streamed(0, *RESPONSE_SIZES))
    assert [len(answer.payload.body) async for answer in call] == [*RESPONSE_SIZES]


async def ping_pong(caller: Caller) -> None:
    call = caller.call("FullDuplexCall")
    for request_size, response_size in zip(REQUEST_SIZES, RESPONSE_SIZES, strict=True):
        await call.write(caller.make_streamed(request_size, response_size))
        assert len((await call.read()).payload.body) == response_size
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK


async def empty_stream(caller: Caller) -> None:
    call = caller.call("FullDuplexCall")
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK


async def timeout_on_sleeping_server(caller: Caller) -> None:
    call = caller.call("FullDuplexCall", timeout=0.001)
    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # it may be over already
        await call.write(caller.make_streamed(27_182))
    assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def cancel_after_begin(caller: Caller) -> None:
    call = caller.call("StreamingInputCall", metadata=METADATA)
    await call.wait_for_connection()
    assert call.cancel()
    assert await call.code() is grpc.StatusCode.CANCELLED


async def cancel_after_first_response(caller: Caller) -> None:
    call = caller.call("FullDuplexCall")
    await call.write(caller.make_streamed(27_182, 31_415))
    assert len((await call.read()).payload.body) == 31_415
    assert call.cancel()
    assert await call.code() is grpc.StatusCode.CANCELLED


async def status_code_and_message(caller: Caller) -> None:
    expected = grpc.StatusCode.UNKNOWN, "test status message"
    unary = caller.call("UnaryCall", caller.make_failing("SimpleRequest", 2, expected[1]))
    assert await read_status(unary) == expected
    stream = caller.call("FullDuplexCall", iter([caller.make_failing("StreamingOutputCallRequest", 2, expected[1])]))
    assert await read_status(stream) == expected


async def special_status_message(caller: Caller) -> None:
    call = caller.call("UnaryCall", caller.make_failing("SimpleRequest", 2, SPECIAL_MESSAGE))
    assert await read_status(call) == (grpc.StatusCode.UNKNOWN, SPECIAL_MESSAGE)


async def custom_metadata(caller: Caller) -> None:
    unary = caller.call("UnaryCall", caller.make_simple(1, 1), metadata=METADATA)
    stream = caller.call("FullDuplexCall", iter([caller.make_streamed(1, 1)]), metadata=METADATA)
    for call in (unary, stream):
        assert await call.code() is grpc.StatusCode.OK
        assert METADATA[0] in list(await call.initial_metadata())
        assert METADATA[1] in list(await call.trailing_metadata())


async def unimplemented_method(caller: Caller) -> None:
    call = caller.call("UnimplementedCall", caller.make_empty())
    assert await call.code() is grpc.StatusCode.UNIMPLEMENTED


async def unimplemented_service(caller: Caller) -> None:
    call = caller.call("UnimplementedCall", caller.make_empty(), service="grpc.testing.UnimplementedService")
    assert await call.code() is grpc.StatusCode.UNIMPLEMENTED


SERVERS_CASES: tuple[Callable[[Caller], Awaitable[None]], ...] = (
    empty_unary,
    large_unary,
    client_streaming,
    server_streaming,
    ping_pong,
    empty_stream,
    timeout_on_sleeping_server,
    cancel_after_begin,
    cancel_after_first_response,
    status_code_and_message,
    special_status_message,
    custom_metadata,
    unimplemented_method,
    unimplemented_service,
)


@secured
@pytest.mark.parametrize("case", SERVERS_CASES, ids=lambda case: case.__name__)
async def test_our_client_passes_the_cases_against_grpc_gos_server(
    judge: Path, contract: Contract, case: Callable[[Caller], Awaitable[None]], files: Files | None
) -> None:
    async with asyncio.timeout(TEST_TIMEOUT_S), calling(judge, contract, files) as caller:
        await case(caller)


UPLOADS, PAUSE_S = 3000, 0.001
"""Messages of a fast upload, in which the server sends more pings than our client would forgive if it sent nothing."""


async def test_our_client_uploads_fast_to_grpc_gos_server(judge: Path, contract: Contract) -> None:
    async with asyncio.timeout(TEST_TIMEOUT_S), calling(judge, contract) as caller:
        call = caller.call("StreamingInputCall")
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # its status says so
            for _ in range(UPLOADS):
                await call.write(caller.make_upload(1))
                await asyncio.sleep(PAUSE_S)
            await call.done_writing()
        assert await read_status(call) == (grpc.StatusCode.OK, "")


FAST_MODEL = Load(streams=1, per_s=400)
SECONDS = 8.0
"""Twice the time after which it broke; `python -m trials grpc-load` has minutes of four clients."""


async def test_grpc_go_reads_a_fast_model_to_its_end(judge: Path) -> None:
    result = await run_load(CLIENTS["grpc-go"], FAST_MODEL, SECONDS, "h2")
    assert result.is_whole, (result.complaint, result.breaks)
