"""Every way a provider can fail, over real sockets: the error's reason, the deltas before it, and its message."""

import asyncio
import gzip
import re
import zlib
from typing import Any

import pytest

from headrace.streams import reading
from services.llm_gateway.protocols.openai.reader import FRAME_BYTES_MAX
from services.llm_gateway.protocols.registry import PROTOCOLS
from tests.support.llm_gateway.answering import HELLO, http_answer, raw_provider
from tests.support.llm_gateway.conversation import SHORT, choose_timeouts
from tests.support.llm_gateway.gateway import Asking, ChatResult, text_message

FINISHED = 'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'

LONGER: dict[str, Any] = {"timeouts": {"connectMs": 10_000, "firstDeltaMs": 10_000, "idleMs": 2000}}
"""For those that must not fall silent, on a busy machine either."""
OPENAI_WORDING = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ({"status": 401}, "PROVIDER_AUTHENTICATION"),
        ({"status": 403}, "PROVIDER_AUTHENTICATION"),
        ({"status": 402}, "PROVIDER_AUTHENTICATION"),
        ({"status": 400}, "INVALID_REQUEST"),
        ({"status": 404}, "INVALID_REQUEST"),
        ({"status": 408}, "PROVIDER_UNAVAILABLE"),
        ({"status": 409}, "PROVIDER_UNAVAILABLE"),
        ({"status": 429}, "RATE_LIMITED"),
        ({"status": 429, "body": {"error": {"code": "insufficient_quota"}}}, "PROVIDER_AUTHENTICATION"),
        ({"status": 429, "body": {"error": {"message": "You exceeded your current quota"}}}, "RATE_LIMITED"),
        ({"status": 400, "body": {"error": {"message": "Your credit balance is too low"}}}, "PROVIDER_AUTHENTICATION"),
        ({"status": 500}, "PROVIDER_UNAVAILABLE"),
        ({"status": 502, "body": "<html>bad gateway</html>"}, "PROVIDER_UNAVAILABLE"),
        ({"status": 503}, "OVERLOADED"),
        ({"status": 529}, "OVERLOADED"),
        ({"status": 400, "body": {"error": {"message": OPENAI_WORDING}}}, "CONTEXT_LENGTH_EXCEEDED"),
        ({"status": 400, "body": {"error": {"code": "data_inspection_failed"}}}, "CONTENT_FILTERED"),
        ({"status": 400, "body": {"message": "Range of input length should be [1, 30720]"}}, "CONTEXT_LENGTH_EXCEEDED"),
        ({"status": 400, "body": [1, 2]}, "INVALID_REQUEST"),
    ],
)
async def test_a_refusal_before_the_stream_has_the_matching_reason(
    asking: Asking, step: dict[str, Any], reason: str
) -> None:
    async with asking([{"steps": [step]}]) as gateway:
        result = await gateway.chat()
    assert result.kinds == ["started"]
    assert result.reason == reason
    assert result.failure.metadata["httpStatus"] == str(step["status"])


@pytest.mark.parametrize(
    ("headers", "retry_after_s"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "7", "retry-after-ms": "1500"}, 1.5),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"Retry-After": "30s"}, 30.0),
        ({"Retry-After": "1500ms"}, 1.5),
        ({"Retry-After": "2015-10-21T07:28:00Z"}, 0.0),
        ({"Retry-After": "1445412480"}, 0.0),
        ({"Retry-After": "-1"}, None),
        ({"retry-after-ms": "2500.0"}, 2.5),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}, 360.0),
        ({"x-ratelimit-remaining-tokens-minute": "0", "x-ratelimit-reset-tokens-minute": "11.38"}, 11.38),
        ({"x-ratelimit-remaining-requests": "9", "x-ratelimit-reset-requests": "6m0s"}, None),
        ({"x-ratelimit-remaining-tokens": "-1", "x-ratelimit-reset-tokens": "0"}, None),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1445412480000"}, None),
        ({"Retry-After": "7", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "60"}, 7.0),
        ({"RateLimit": '"api";r=0;t=55', "RateLimit-Policy": '"fixed window";"api";q=500;w=300'}, 55.0),
        ({"RateLimit": "limit=100, remaining=0, reset=7"}, 7.0),
        ({"RateLimit": '"api";r=489;t=189'}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "Wed, 21 Oct 99999999999999999999999 07:28:00 GMT"}, None),
        ({}, None),
    ],
)
async def test_a_rate_limit_reports_how_long_to_wait(
    asking: Asking, headers: dict[str, str], retry_after_s: float | None
) -> None:
    async with asking([{"steps": [{"status": 429, "headers": headers}]}]) as gateway:
        error = (await gateway.chat()).failure
    assert error.retry_after_s == retry_after_s


async def test_openrouters_reset_time_in_the_body_becomes_the_wait(asking: Asking) -> None:
    headers = {"X-RateLimit-Limit": "50", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "9999999999999"}
    error = {"message": "Rate limit exceeded: free-models-per-day", "code": 429, "metadata": {"headers": headers}}
    async with asking([{"steps": [{"status": 429, "body": {"error": error}}]}]) as gateway:
        failure = (await gateway.chat()).failure
        assert len(gateway.sim.requests) == 1, "nobody waits until the year 2286"
    assert (failure.retry_after_s or 0) > 86_400


async def test_a_full_window_reports_token_counts_even_if_the_provider_does_not(asking: Asking) -> None:
    async with asking([{"steps": [{"finish": "length"}]}]) as gateway:
        error = (await gateway.chat()).failure
    assert error.reason == "CONTEXT_LENGTH_EXCEEDED"
    assert (error.metadata["maxTokens"], error.metadata["role"]) == ("1000", "user")
    assert int(error.metadata["currentTokens"]) > 0


async def test_the_providers_message_is_passed_on_without_secrets(asking: Asking) -> None:
    body = {"error": {"message": "Incorrect API key provided: my-own-key-0001. See the dashboard."}}
    async with asking([{"steps": [{"status": 401, "body": body}]}], apiKeys=["env:SIM_KEY"]) as gateway:
        gateway.env["SIM_KEY"] = "my-own-key-0001"
        error = (await gateway.chat()).failure
    assert "See the dashboard" in error.message
    assert "my-own-key-0001" not in error.message


@pytest.mark.parametrize(
    ("error_object", "reason"),
    [
        ({"message": "busy", "type": "server_error", "code": 503}, "OVERLOADED"),
        ({"message": "slow down", "code": "rate_limit_exceeded"}, "RATE_LIMITED"),
        ({"message": OPENAI_WORDING, "code": "context_length_exceeded"}, "CONTEXT_LENGTH_EXCEEDED"),
        ({"message": "no", "type": "invalid_request_error"}, "INVALID_REQUEST"),
        ({"message": "what", "code": None}, "PROVIDER_UNAVAILABLE"),
        ("just a text", "PROVIDER_UNAVAILABLE"),
    ],
)
async def test_an_error_inside_a_stream_ends_it_with_the_usage_so_far(
    asking: Asking, error_object: object, reason: str
) -> None:
    async with asking([{"steps": [{"content": "a"}, {"frame": {"error": error_object}}]}]) as gateway:
        result = await gateway.chat()
    assert result.kinds == ["started", "content", "usage"]
    assert result.reason == reason


@pytest.mark.parametrize(
    ("steps", "kinds", "reason"),
    [
        ([{"content": "a"}, {"raw": 'data: {"cho'}, {"cut": True}], ["started", "content", "usage"], None),
        ([{"raw": "data: not json\n\n"}, {"end": True}], ["started"], "PROVIDER_UNAVAILABLE"),
        ([{"content": "a"}, {"raw": 'data: {"choices": 7}\n\n'}], ["started", "content", "usage"], "BAD_FRAME"),
        ([{"raw": 'data: {"choices":[{"delta":{"content":"\xff"}}]}\n\n'}], ["started"], "BAD_FRAME"),
        ([{"raw": 'data: {"choices":' + "[" * 100_000 + "\n\n"}], ["started"], "BAD_FRAME"),
        ([{"raw": 'data: {"cho'}, {"end": True}], ["started"], "BAD_FRAME"),
        ([{"finish": "length"}], ["started"], "CONTEXT_LENGTH_EXCEEDED"),
    ],
)
async def test_a_broken_stream_ends_with_a_typed_error(
    asking: Asking, steps: list[Any], kinds: list[str], reason: str | None
) -> None:
    async with asking([{"steps": steps}]) as gateway:
        result = await gateway.chat()
        await gateway.sim.until_idle()
    assert result.kinds == kinds
    assert result.reason == (reason or "PROVIDER_UNAVAILABLE")


async def test_a_frame_of_the_maximum_size_is_one_delta(asking: Asking) -> None:
    text = "x" * (FRAME_BYTES_MAX - 1000)
    async with asking([{"steps": [{"content": text}]}]) as gateway:
        assert (await gateway.chat()).content == [text]


async def test_keep_alive_comments_do_not_extend_the_first_delta_timeout(asking: Asking) -> None:
    steps = [{"raw": ": still here\n\n"}, {"waitMs": 100}] * 10
    async with asking([{"steps": steps}], **SHORT) as gateway:
        assert (await gateway.chat()).reason == "STREAM_STALLED"


async def test_a_slow_but_steady_stream_is_not_stalled(asking: Asking) -> None:
    steps = [{"content": ["a"] * 6}]
    async with asking([{"steps": steps, "paceMs": 500}], **LONGER) as gateway:
        assert (await gateway.chat()).content == ["a"] * 6


async def test_a_slow_reader_is_not_taken_for_a_silent_provider(asking: Asking) -> None:
    async with asking(**LONGER) as gateway:
        request = gateway.request(model="bench-20000x0ms")
        count = 0
        async with reading(gateway.llm.StreamChat(request)) as replies:
            async for _ in replies:
                count += 1
                if count == 5:
                    await asyncio.sleep(3.0)
    assert count == 20003


@pytest.mark.parametrize(
    "base_url", ["http://127.0.0.1:9/v1", "http://127.0.0.1:port/v1", "http://headrace.invalid/v1"]
)
async def test_an_unreachable_address_is_provider_unavailable(asking: Asking, base_url: str) -> None:
    async with asking(baseUrl=base_url, **SHORT) as gateway:
        result = await gateway.chat()
    assert result.kinds == ["started"]
    assert result.reason == "PROVIDER_UNAVAILABLE"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "STREAM_STALLED"),
        (b"SSH-2.0-OpenSSH\r\n", "PROVIDER_UNAVAILABLE"),
        (http_answer(200), "PROVIDER_UNAVAILABLE"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n", "STREAM_STALLED"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 35\r\n\r\n"
            b'{"error":{"code":"rate_limit_hit"}}',
            "RATE_LIMITED",
        ),
    ],
    ids=["silence", "not HTTP", "no body", "body missing", "error in a 200"],
)
async def test_a_response_that_is_no_stream_has_a_typed_error(asking: Asking, answer: bytes, reason: str) -> None:
    async with raw_provider(answer) as (base_url, _), asking(baseUrl=base_url, **choose_timeouts(reason)) as gateway:
        result = await gateway.chat()
    assert result.kinds == ["started"]
    assert result.reason == reason
    is_shown = f" at {base_url}/chat/completions (check its baseUrl) " in result.failure.message
    assert is_shown is (reason == "PROVIDER_UNAVAILABLE")


STREAM = HELLO.partition(b"\r\n\r\n")[2]

PAGE = b"<!doctype html>\n<html><head><title>Sign in</title></head>\n<body class='x'>Please   sign in.</body></html>"

ANSWERED = "provider 'sim' answered {status} for model 'sim-1': {what}"

TOO_LONG = b'{"error": {"message": "This model\'s maximum context length is 8192 tokens."}}'


async def chat_with_answer(asking: Asking, answer: bytes) -> ChatResult:
    async with asking(answers=[answer]) as gateway:
        return await gateway.chat()


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (
            http_answer(200, PAGE, Content_Type="text/html; charset=utf-8"),
            "200 ELSEWHERE text/html: Sign in Please sign in.",
        ),
        (http_answer(502, PAGE, Content_Type="text/html"), "502 text/html: Sign in Please sign in."),
        (
            http_answer(200, b"<Error>denied</Error>", Content_Type="application/xml"),
            "200 ELSEWHERE application/xml: denied",
        ),
        (b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n", "204 without a body"),
        (http_answer(202), "202 without a body"),
    ],
)
async def test_the_error_shows_the_response_received_instead_of_a_stream(
    asking: Asking, answer: bytes, what: str
) -> None:
    result = await chat_with_answer(asking, answer)
    assert result.kinds == ["started"]
    status, _, description = what.partition(" ")
    *_, description = description.rpartition("ELSEWHERE ")
    message = re.sub(
        r" at http://127\.0\.0\.1:\d+/v1/chat/completions \(check its baseUrl\)", "", result.failure.message
    )
    assert (message != result.failure.message) is (what != f"{status} {description}")
    assert (result.reason, message) == ("PROVIDER_UNAVAILABLE", ANSWERED.format(status=status, what=description))


STRANGE = {
    "a web page": (PAGE, "text/html: Sign in Please sign in."),
    "an object of another API": (b'{"status": "ok", "data": []}', '{"status": "ok", "data": []}'),
    "an object in lines": (b'{\n  "version": "0.1.2"\n}', '"version": "0.1.2"'),
    "fields of other types": (b'{"choices": "none", "candidates": 1, "output": 7, "content": 5, "type": 3}', "none"),
    "a list": (b"[1, 2]", "[1, 2]"),
    "a text": (b'"hello there"', "hello there"),
    "a line": (b"Ollama is running", "Ollama is running"),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", STRANGE)
async def test_an_answer_of_another_program_is_shown_with_its_url(asking: Asking, protocol: str, kind: str) -> None:
    body, excerpt = STRANGE[kind]
    async with asking(answers=[http_answer(200, body, Content_Type="application/json")], protocol=protocol) as gateway:
        result = await gateway.chat()
    assert result.kinds == ["started"]
    assert result.reason == "PROVIDER_UNAVAILABLE"
    assert re.search(
        r"answered 200 for model 'sim-1' at http://127\.0\.0\.1:\d+/\S+ \(check its baseUrl\): ", result.failure.message
    )
    assert excerpt in result.failure.message


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (http_answer(404, b"404 page not found"), "404 page not found"),
        (http_answer(404, b'{"detail":"Not Found"}'), "Not Found"),
        (http_answer(405, b'{"error": {"message": "Method Not Allowed"}}'), "Method Not Allowed"),
        (http_answer(301, Location="https://elsewhere.example/v1"), "a redirect to https://elsewhere.example/v1"),
        (http_answer(404, b'{"error": {"message": "model \'sim-1\' not found"}}'), ""),
    ],
)
async def test_a_missing_path_is_shown_with_its_url(asking: Asking, answer: bytes, what: str) -> None:
    async with asking(answers=[answer]) as gateway:
        result = await gateway.chat()
    assert ("(check its baseUrl): " + what in result.failure.message) is bool(what)


async def test_an_html_page_of_only_brackets_is_handled_cheaply(asking: Asking) -> None:
    result = await chat_with_answer(asking, http_answer(500, b"<" * 60_000, Content_Type="text/html"))
    assert result.failure.message.startswith(ANSWERED.format(status=500, what="text/html: <<<<"))
    assert len(result.failure.message) < 600


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "GZIP"])
async def test_an_unrequested_compressed_stream_is_refused(asking: Asking, coding: str) -> None:
    body = zlib.compress(STREAM) if coding == "deflate" else gzip.compress(STREAM)
    result = await chat_with_answer(asking, http_answer(200, body, Content_Encoding=coding))
    assert result.kinds == ["started"]
    assert result.reason == "PROVIDER_UNAVAILABLE"
    assert f"content-encoding {coding.lower()!r}, though 'identity' was asked for" in result.failure.message
    assert "hello" not in result.failure.message


async def test_a_content_encoding_of_identity_is_accepted(asking: Asking) -> None:
    result = await chat_with_answer(asking, HELLO.replace(b"Connection", b"Content-Encoding: identity\r\nConnection"))
    assert (result.content, result.error) == (["hello"], None)


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
async def test_a_compressed_refusal_is_read(asking: Asking, pack: object) -> None:
    body = gzip.compress(TOO_LONG) if pack is gzip.compress else zlib.compress(TOO_LONG)
    coding = "gzip" if pack is gzip.compress else "deflate"
    result = await chat_with_answer(
        asking, http_answer(400, body, Content_Type="application/json", Content_Encoding=coding)
    )
    assert result.reason == "CONTEXT_LENGTH_EXCEEDED"


async def test_a_compressed_refusal_is_decompressed_up_to_a_limit(asking: Asking) -> None:
    """Without the limit, a body of 60 kB would be decompressed to 60 MB."""
    bomb = gzip.compress(b"x" * 60_000_000)
    result = await chat_with_answer(asking, http_answer(500, bomb, Content_Type="text/plain", Content_Encoding="gzip"))
    assert result.failure.message.startswith(ANSWERED.format(status=500, what="x" * 100))
    assert len(result.failure.message) < 600


async def test_a_refusal_falsely_marked_as_compressed_is_shown_as_sent(asking: Asking) -> None:
    result = await chat_with_answer(
        asking, http_answer(500, b"no room", Content_Type="text/plain", Content_Encoding="gzip")
    )
    assert result.failure.message == ANSWERED.format(status=500, what="no room")


def wrap_error(raw: Any) -> dict[str, Any]:
    return {"error": {"message": "Provider returned error", "metadata": {"raw": raw}}}


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (429, [{"error": {"message": "slow", "details": [{"retryDelay": "34.5s"}]}}], "RATE_LIMITED"),
        (400, wrap_error('{"error":{"message":"prompt is too long"}}'), "CONTEXT_LENGTH_EXCEEDED"),
        (400, wrap_error({"code": "data_inspection_failed"}), "CONTENT_FILTERED"),
        (400, wrap_error("{"), "INVALID_REQUEST"),
        (400, {"error": {"message": "Failed to call a function.", "code": "tool_use_failed"}}, "PROVIDER_UNAVAILABLE"),
        (413, "Payload too large", "CONTEXT_LENGTH_EXCEEDED"),
    ],
)
async def test_an_error_nested_in_a_vendors_error_is_read(asking: Asking, status: int, body: Any, reason: str) -> None:
    async with asking([{"steps": [{"status": status, "body": body}]}]) as gateway:
        result = await gateway.chat()
    assert result.reason == reason
    assert result.failure.retry_after_s == (34.5 if status == 429 else None)


@pytest.mark.parametrize(("words", "reason"), [(10, "INVALID_REQUEST"), (900, "CONTEXT_LENGTH_EXCEEDED")])
async def test_an_unknown_refusal_near_the_window_is_a_full_window(asking: Asking, words: int, reason: str) -> None:
    step = {"status": 400, "body": {"error": {"message": "Kein Zugriff"}}}
    async with asking([{"steps": [step]}]) as gateway:
        result = await gateway.chat(text_message("user", "word " * words))
    assert result.reason == reason


async def test_an_answer_with_a_finish_reason_ends_soon_whatever_follows(asking: Asking) -> None:
    usage = 'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":1}}\n\n'
    beats = [step for _ in range(60) for step in ({"waitMs": 1000}, {"raw": ": heartbeat\n\n"})]
    steps = [{"content": "a"}, {"raw": f"{FINISHED}{usage}"}, *beats, {"end": True}]
    clock = asyncio.get_running_loop().time
    async with asking([{"steps": steps}]) as gateway:
        begun_s = clock()
        result = await gateway.chat()
        assert clock() - begun_s < 10
    assert result.kinds == ["started", "content", "usage", "finish"]
    assert result.usage.input_tokens == 7


@pytest.mark.parametrize(
    ("protocol", "frame"),
    [
        ("openai", '{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}'),
        ("gemini", '{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}'),
    ],
)
async def test_an_answer_with_a_finish_reason_in_every_frame_is_complete(
    asking: Asking, protocol: str, frame: str
) -> None:
    """https://github.com/suhaibbinyounis/github-copilot-api-vscode/issues/100, 2026-05."""
    frames = [step for _ in range(5) for step in ({"waitMs": 900}, {"raw": f"data: {frame}\n\n"})]
    async with asking([{"steps": [*frames, {"end": True}], "opening": False}], protocol=protocol) as gateway:
        result = await gateway.chat()
    assert (result.content, result.reason) == (["a"] * 5, "")
