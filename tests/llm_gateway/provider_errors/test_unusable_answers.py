"""Answers that are no stream: packed bodies, pages, nothing at all; what came is said, and no answer's words."""

from __future__ import annotations

import gzip
import zlib

import pytest

from tests.support.llm_gateway.answering import HELLO, http_answer
from tests.support.llm_gateway.gateway import Asking, Heard

STREAM = HELLO.partition(b"\r\n\r\n")[2]

PAGE = b"<!doctype html>\n<html><head><title>Sign in</title></head>\n<body class='x'>Please   sign in.</body></html>"

ANSWERED = "provider 'sim' answered {status} for model 'sim-1': {what}"

TOO_LONG = b'{"error": {"message": "This model\'s maximum context length is 8192 tokens."}}'


async def hear(asking: Asking, answer: bytes) -> Heard:
    async with asking(answers=[answer]) as gateway:
        return await gateway.hear()


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (http_answer(200, PAGE, Content_Type="text/html; charset=utf-8"), "200 text/html: Sign in Please sign in."),
        (http_answer(502, PAGE, Content_Type="text/html"), "502 text/html: Sign in Please sign in."),
        (http_answer(200, b"<Error>denied</Error>", Content_Type="application/xml"), "200 application/xml: denied"),
        (b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n", "204 without a body"),
        (http_answer(202), "202 without a body"),
    ],
)
async def test_what_came_instead_of_a_stream_is_said(asking: Asking, answer: bytes, what: str) -> None:
    heard = await hear(asking, answer)
    assert heard.kinds == ["started"]
    status, _, rest = what.partition(" ")
    assert (heard.reason, heard.failure.message) == ("PROVIDER_UNAVAILABLE", ANSWERED.format(status=status, what=rest))


async def test_a_page_of_nothing_but_brackets_takes_no_time_and_no_room(asking: Asking) -> None:
    heard = await hear(asking, http_answer(500, b"<" * 60_000, Content_Type="text/html"))
    assert heard.failure.message.startswith(ANSWERED.format(status=500, what="text/html: <<<<"))
    assert len(heard.failure.message) < 600


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "GZIP"])
async def test_a_packed_stream_that_nobody_asked_for_is_refused_without_its_words(asking: Asking, coding: str) -> None:
    body = zlib.compress(STREAM) if coding == "deflate" else gzip.compress(STREAM)
    heard = await hear(asking, http_answer(200, body, Content_Encoding=coding))
    assert heard.kinds == ["started"]
    assert heard.reason == "PROVIDER_UNAVAILABLE"
    assert f"content-encoding {coding.lower()!r}, though 'identity' was asked for" in heard.failure.message
    assert "hello" not in heard.failure.message


async def test_an_identity_that_is_named_is_none(asking: Asking) -> None:
    heard = await hear(asking, HELLO.replace(b"Connection", b"Content-Encoding: identity\r\nConnection"))
    assert (heard.content, heard.error) == (["hello"], None)


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
async def test_a_packed_refusal_is_read(asking: Asking, pack: object) -> None:
    body = gzip.compress(TOO_LONG) if pack is gzip.compress else zlib.compress(TOO_LONG)
    coding = "gzip" if pack is gzip.compress else "deflate"
    heard = await hear(asking, http_answer(400, body, Content_Type="application/json", Content_Encoding=coding))
    assert heard.reason == "CONTEXT_LENGTH_EXCEEDED"


async def test_a_packed_refusal_is_unpacked_up_to_a_bound(asking: Asking) -> None:
    """60 kB that would be 60 MB: read in one go without it, 1,000 times as much as the body."""
    bomb = gzip.compress(b"x" * 60_000_000)
    heard = await hear(asking, http_answer(500, bomb, Content_Type="text/plain", Content_Encoding="gzip"))
    assert heard.failure.message.startswith(ANSWERED.format(status=500, what="x" * 100))
    assert len(heard.failure.message) < 600


async def test_a_refusal_that_claims_to_be_packed_is_said_as_it_is(asking: Asking) -> None:
    heard = await hear(asking, http_answer(500, b"no room", Content_Type="text/plain", Content_Encoding="gzip"))
    assert heard.failure.message == ANSWERED.format(status=500, what="no room")
