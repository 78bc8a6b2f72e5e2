"""One call over a real socket: every form of a response, split everywhere, and every malformed one."""

import asyncio
import errno
from collections.abc import Iterator

import httptools
import pytest

from headrace.errors import BadFrame, HeadraceError, ProviderUnavailable, StreamStalled
from services.llm_gateway.http.client import EXCHANGE_FAILURES, translate_exchange_error, translating_connect_errors
from services.llm_gateway.http.connection import OVERHEAD_BYTES_MAX, Connection
from services.llm_gateway.http.pool import Pool
from services.llm_gateway.http.request import Origin, encode_post, split_url
from services.llm_gateway.providers.provider_file import Provider
from tests.support.llm_gateway.gateway import provider_entry
from tests.support.llm_gateway.scripted import END, ORDINARY, Answer, Exchange, ask, chunk, read, serving_script

BODY = b"".join(b"data: %d\n\n" % number for number in range(40))
PIECES = (BODY[:1], BODY[1:2], BODY[2:100], BODY[100:])
CHUNKS = b"".join(chunk(piece) for piece in PIECES)
OPENING = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
FORMS = {
    "chunked": ORDINARY + CHUNKS + END,
    "chunked, with extensions and a trailer": ORDINARY
    + CHUNKS.replace(b"1\r\n", b"1;name=value\r\n", 1)
    + b"0;last\r\nDigest: x\r\n\r\n",
    "with its length": OPENING + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY,
    "to the end of the connection": OPENING + b"\r\n" + BODY,
    "HTTP/1.0": OPENING.replace(b"1.1", b"1.0") + b"\r\n" + BODY,
    "after 100 and 103": b"HTTP/1.1 100 Continue\r\n\r\n"
    + b"HTTP/1.1 103 Early Hints\r\nContent-Type: application/json\r\n\r\n"
    + ORDINARY
    + CHUNKS
    + END,
    "without a reason, with an empty field": b"HTTP/1.1 200\r\nX-Empty:\r\nContent-Length: %d\r\n\r\n" % len(BODY)
    + BODY,
}


def answering(data: bytes, *, step: int | None = None) -> Answer:
    async def answer(exchange: Exchange) -> None:
        await exchange.say(data, step=step)
        exchange.hang_up()

    return answer


@pytest.mark.parametrize("step", [None, 1, 7])
@pytest.mark.parametrize("form", FORMS)
async def test_the_body_is_the_same_in_every_form_and_chunking(form: str, step: int | None) -> None:
    async with Pool() as pool, serving_script(answering(FORMS[form], step=step)) as server:
        assert await read(pool, ask(server)) == BODY


class NoSocket(asyncio.Transport):
    """Reads nothing; remembers whether it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.is_aborted = False

    def is_closing(self) -> bool:
        return self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True

    def writelines(self, list_of_data: object) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


@pytest.mark.parametrize("form", FORMS)
async def test_the_body_is_the_same_wherever_the_response_is_split(form: str) -> None:
    data = FORMS[form]
    for cut in range(1, len(data)):
        connection, body = Connection(Origin("a", 80, is_tls=False)), list[bytes]()
        connection.connection_made(NoSocket())
        response = connection.send_request(())
        connection.data_received(data[:cut])
        connection.data_received(data[cut:])
        connection.connection_lost(None)
        await response.read_head()
        assert not await response.push_body(lambda piece, body=body: body.append(piece) is None)
        assert b"".join(body) == BODY
        connection.close()


MALFORMED = {
    "no HTTP": b"SSH-2.0-OpenSSH\r\n",
    "HTTP/2": b"HTTP/2 200\r\n\r\n",
    "line feeds alone": ORDINARY.replace(b"\r\n", b"\n"),
    "another protocol": b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    "chunk size": ORDINARY + b"zz\r\nab\r\n",
    "chunk longer than said": ORDINARY + b"1\r\nab\r\n",
    "chunk size too large": ORDINARY + b"f" * 17 + b"\r\n",
    "two lengths": OPENING + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    "cut off in the head": OPENING,
    "cut off in a chunk": ORDINARY + b"5\r\nab",
    "cut off between chunks": ORDINARY + chunk(b"ab"),
    "shorter than said": OPENING + b"Content-Length: 9\r\n\r\nab",
    "nothing": b"",
}


@pytest.mark.parametrize("step", [None, 1])
@pytest.mark.parametrize("form", MALFORMED)
async def test_a_malformed_response_is_provider_unavailable(form: str, step: int | None) -> None:
    is_short = form.startswith(("cut off", "shorter", "nothing"))
    async with Pool() as pool, serving_script(answering(MALFORMED[form], step=step)) as server:
        match = "broke the connection off" if is_short else "does not answer in HTTP/1.1"
        with pytest.raises(ProviderUnavailable, match=match):
            await read(pool, ask(server))
        assert server.connections == 1


ENDLESS = {
    "header": (OPENING + b"X: ", b"x" * 1000),
    "headers": (OPENING, b"X: y\r\n" * 100),
    "early hints": (b"", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 10),
    "chunk extension": (ORDINARY + chunk(b"data: a\n\n") + b"1;", b"x" * 1000),
    "trailer": (ORDINARY + chunk(b"data: a\n\n") + b"0\r\nX: ", b"x" * 1000),
    "trailers": (ORDINARY + chunk(b"data: a\n\n") + b"0\r\n", b"X: y\r\n" * 100),
}


@pytest.mark.parametrize("kind", ENDLESS)
async def test_endless_headers_or_trailers_are_abandoned(kind: str) -> None:
    opening, more = ENDLESS[kind]
    sent_bytes = 0

    async def answer(exchange: Exchange) -> None:
        nonlocal sent_bytes
        await exchange.say(opening)
        while True:
            await exchange.say(more)
            sent_bytes += len(more)

    async with Pool() as pool, serving_script(answer) as server:
        with pytest.raises(ProviderUnavailable):
            await read(pool, ask(server))
        await server.closed.wait()
    assert sent_bytes > OVERHEAD_BYTES_MAX // 2


async def test_response_headers_of_some_kilobytes_are_accepted() -> None:
    fields = b"".join(b"X-%d: %s\r\n" % (number, b"y" * 500) for number in range(60))
    answer = answering(OPENING + fields + b"Content-Length: 2\r\n\r\nab", step=1000)
    async with Pool() as pool, serving_script(answer) as server:
        assert await read(pool, ask(server)) == b"ab"


async def test_a_redirect_is_not_followed() -> None:
    moved = b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"
    async with Pool() as pool, serving_script(answering(moved)) as server:
        with pytest.raises(HeadraceError) as caught:
            await read(pool, ask(server))
    assert caught.value.metadata["httpStatus"] == "302"
    assert len(server.exchanges) == 1


async def test_a_large_request_arrives_in_full_at_a_slow_server() -> None:
    body = bytes(range(256)) * 32_768  # 8 MiB: more than sockets hold
    async with Pool() as pool, serving_script(answering(FORMS["chunked"])) as server:
        assert await read(pool, ask(server, body)) == BODY
        assert server.exchanges[0].body == body


PROVIDER = Provider.model_validate(provider_entry("http://127.0.0.1:1/v1"))


def of_the_system(cls: type[BaseException] = OSError) -> Iterator[type[BaseException]]:
    """Yield the exceptions of the interpreter, ssl and socket; other libraries' subclasses are never raised here."""
    if cls.__module__ in ("builtins", "ssl", "socket"):
        yield cls
    for derived in cls.__subclasses__():
        yield from of_the_system(derived)


OF_THE_PARSER = [cls for name, cls in vars(httptools).items() if name.startswith("HttpParser")]


def fail_exchange(failure: BaseException) -> None:
    try:
        raise failure
    except EXCHANGE_FAILURES as error:
        raise translate_exchange_error(PROVIDER, error) from error


@pytest.mark.parametrize("cls", sorted({*of_the_system(), *OF_THE_PARSER}, key=str), ids=lambda cls: cls.__name__)
def test_every_exception_of_an_exchange_is_translated(cls: type[BaseException]) -> None:
    with pytest.raises(HeadraceError) as caught:
        fail_exchange(cls.__new__(cls))
    assert not isinstance(caught.value, BadFrame)
    assert caught.value.retriable


def test_a_connection_timed_out_by_the_system_is_broken_not_silent() -> None:
    with pytest.raises(ProviderUnavailable):
        fail_exchange(OSError(errno.ETIMEDOUT, "timed out"))
    with pytest.raises(StreamStalled):
        fail_exchange(TimeoutError())


@pytest.mark.parametrize("cls", sorted({*of_the_system()}, key=str), ids=lambda cls: cls.__name__)
def test_every_exception_of_connecting_is_translated(cls: type[BaseException]) -> None:
    with pytest.raises(HeadraceError) as caught, translating_connect_errors(PROVIDER, Origin("a", 81, is_tls=True)):
        raise cls.__new__(cls)
    assert caught.value.reason == "PROVIDER_UNAVAILABLE"
    assert "https://a:81 " in caught.value.message


def test_the_parser_has_six_exceptions() -> None:
    assert len(OF_THE_PARSER) == 6


@pytest.mark.parametrize(
    ("url", "origin", "authority", "path"),
    [
        ("https://api.example/v1/chat", Origin("api.example", 443, True), "api.example", "/v1/chat"),
        ("http://api.example/v1", Origin("api.example", 80, False), "api.example", "/v1"),
        ("http://api.example", Origin("api.example", 80, False), "api.example", "/"),
        ("http://api.example:443/v1", Origin("api.example", 443, False), "api.example:443", "/v1"),
        ("http://[::1]:8000/v1", Origin("::1", 8000, False), "[::1]:8000", "/v1"),
        ("https://wässer.example/v1", Origin("xn--wsser-gra.example", 443, True), "xn--wsser-gra.example", "/v1"),
        ("http://a/v1/mühle/%20/p:x", Origin("a", 80, False), "a", "/v1/m%C3%BChle/%20/p:x"),
    ],
)
def test_a_url_is_split_into_origin_and_path(url: str, origin: Origin, authority: str, path: str) -> None:
    assert split_url(url) == (origin, path)
    assert origin.authority == authority


@pytest.mark.parametrize(
    "url", ["http://[::1/v1", "http://a:port/v1", "http://a:70000/v1", "http:///v1", "http://ü..x"]
)
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        split_url(url)


def test_a_request_is_encoded_as_headers_and_the_unchanged_body() -> None:
    body = b'{"a":1}'
    head, sent = encode_post(Origin("a", 80, False), "/v1", {"Authorization": "Bearer k"}, body)
    assert sent is body
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /v1 HTTP/1.1"
    assert lines[-2:] == [b"", b""]
    assert {b"Host: a", b"Authorization: Bearer k", b"Content-Length: 7", b"Accept-Encoding: identity"} < {*lines}


@pytest.mark.parametrize("value", ["a\r\nX: y", "a\nb", "a\x00", "\u6c34"])
def test_a_value_that_would_inject_a_header_is_refused_without_showing_it(value: str) -> None:
    with pytest.raises(ValueError, match="Authorization") as caught:
        encode_post(Origin("a", 80, False), "/v1", {"Authorization": value}, b"")
    assert value not in str(caught.value)
