"""The HTTP transport under the SDK's client, which reports a request's outcome to its sender.

The SDK owns a shared session. It gives a caller only a code and a text, and ends the whole session when one request's
connection fails. So a caller follows its request: the transport writes the outcome into an object of the caller's
context. An invalid character does not cost a response: it becomes U+FFFD.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import httpx2
import orjson
from mcp.client.auth.utils import (
    extract_field_from_www_auth,
    extract_resource_metadata_from_www_auth,
    extract_scope_from_www_auth,
)
from mcp_types import INTERNAL_ERROR

from services.tools.mcp_client.sdk_errors import BROKEN, REASON_CHARS_MAX, Challenge, CredentialRefused

UNAUTHORIZED, FORBIDDEN, NOT_FOUND = 401, 403, 404
CLIENT_ERROR, SERVER_ERROR = 400, 500

ENCODING = "headrace-json"
"""Name of the codec, which decodes differently from UTF-8."""

LINE_CHARS_MAX = 32 * 1024 * 1024
"""Maximum characters of a line, enough for a picture of 20 MB in base64."""

ANSWER_BYTES_MAX = LINE_CHARS_MAX
"""Maximum size of a response over HTTP."""

_HEX = "[0-9a-fA-F]"
_HIGH, _LOW = rf"\\u[dD][89abAB]{_HEX}{{2}}", rf"\\u[dD][c-fC-F]{_HEX}{{2}}"
_ESCAPE = re.compile(
    rf"{_HIGH}{_LOW}|(?P<open>(?:{_HIGH}|(?:{_HIGH})?\\(?:u{_HEX}{{0,3}})?)\Z)|(?P<half>{_HIGH}|{_LOW})|\\.", re.DOTALL
)
"""An escape of a JSON string: a surrogate pair, one continued in the next piece, half a pair, any other."""


class SentRequest:
    def __init__(self, *, is_opening: bool = False) -> None:
        """While a session is being opened, its first failure ends it."""
        self.is_opening = is_opening
        self.note_start(has_session=False)

    def note_start(self, *, has_session: bool) -> None:
        """Record that the request is sent: once, or again if the SDK resumes reading after a cut."""
        self.has_session = has_session
        """Whether it refers to a session that its server should know."""
        self.error: httpx2.TransportError | None = None
        """Why its connection failed, or its response was not read."""
        self.status = 0
        self.is_cut = False
        """Whether its response, or the stream for it, ended too early."""
        self.is_plain = False
        """Whether its response was not in the protocol, but came from a proxy in front of the server."""

    @property
    def may_have_run(self) -> bool:
        """Whether the server may have carried out the request and its response is lost."""
        return self.is_cut or self.is_plain_failure or not (self.error is None or self.status or self.is_unsent)

    @property
    def is_unsent(self) -> bool:
        return isinstance(self.error, (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout))

    @property
    def is_plain_failure(self) -> bool:
        return self.is_plain and self.status >= SERVER_ERROR

    @property
    def is_unknown_session(self) -> bool:
        """Whether the server has forgotten the session, and so has not accepted the request."""
        return self.has_session and self.status == NOT_FOUND

    @property
    def is_refused(self) -> bool:
        """Whether the server refused it with a status, possibly because of the session."""
        return self.has_session and CLIENT_ERROR <= self.status < SERVER_ERROR


CURRENT: ContextVar[SentRequest | None] = ContextVar("sent_request", default=None)


@contextmanager
def follow_request(*, is_opening: bool = False) -> Generator[SentRequest]:
    """Follow the requests in the block, one after the other."""
    sent = SentRequest(is_opening=is_opening)
    token = CURRENT.set(sent)
    try:
        yield sent
    finally:
        CURRENT.reset(token)


class JsonDecoder(codecs.IncrementalDecoder):
    """Decodes JSON in UTF-8 piece by piece.

    Raises:
        ValueError: A line is longer than LINE_CHARS_MAX.
    """

    def __init__(self, errors: str = "replace") -> None:
        super().__init__(errors)
        self._utf8 = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._open = ""
        """An incomplete escape."""
        self._line_chars = 0

    def decode(self, input: bytes, final: bool = False) -> str:  # type: ignore[override]
        text = self._open + self._utf8.decode(input, final)
        self._open = ""
        if "\\" in text:
            text = _ESCAPE.sub(self._replace_half, text)
        if final:
            text, self._open = text + "\\ufffd" * bool(self._open), ""
        last = text.rfind("\n")
        self._line_chars = len(text) - last - 1 if last >= 0 else self._line_chars + len(text)
        if self._line_chars > LINE_CHARS_MAX:
            raise ValueError(f"its answer is longer than {LINE_CHARS_MAX:,} characters")
        return text

    def _replace_half(self, found: re.Match[str]) -> str:
        match found.lastgroup:
            case "open":
                self._open = found.group()
                return ""
            case "half":
                return "\\ufffd"
            case _:
                return found.group()


def _find_codec(name: str) -> codecs.CodecInfo | None:
    if name.replace("_", "-") != ENCODING:
        return None
    return codecs.CodecInfo(codecs.utf_8_encode, codecs.utf_8_decode, incrementaldecoder=JsonDecoder, name=ENCODING)


codecs.register(_find_codec)


def repair_response(sent: dict[str, Any], number: int | str) -> dict[str, Any]:
    """Return a response to the request `number` in the form of the protocol: its result, or an error."""
    result, reason = sent.get("result"), sent.get("error")
    if isinstance(result, dict):
        return {"jsonrpc": "2.0", "id": number, "result": result}
    error: dict[str, Any] = reason if isinstance(reason, dict) else {"message": reason}
    code, text = error.get("code"), error.get("message")
    error = error | {
        "code": code if isinstance(code, int) else INTERNAL_ERROR,
        "message": text if isinstance(text, str) else BROKEN,
    }
    return {"jsonrpc": "2.0", "id": number, "error": error}


def _repair_body(body: bytes, request: httpx2.Request, status: int, kind: str) -> bytes:
    """Return the body of a response to `request`, in the form of the protocol if it is one response or a refusal."""
    try:
        asked = orjson.loads(request.content)
    except (orjson.JSONDecodeError, httpx2.RequestNotRead):
        return body
    try:
        sent = orjson.loads(body)
    except orjson.JSONDecodeError:
        sent = None
    if status >= CLIENT_ERROR and not (isinstance(sent, dict) and "jsonrpc" in sent):
        # The SDK would hide the status. The text is left out if it is a page, which is written for people.
        is_text = kind.startswith(("text/plain", "application/json"))
        lines = body.decode(errors="replace").splitlines()[:1] if is_text else []
        sent = {"error": {"message": ": ".join((f"it answered with status {status}", *lines))[:REASON_CHARS_MAX]}}
    if not (isinstance(sent, dict) and sent.keys() & {"result", "error"}) or "id" not in asked:
        return body
    repaired = repair_response(sent, asked["id"])
    return body if repaired == sent and not isinstance(sent["id"], float) else orjson.dumps(repaired)


class FollowedTransport(httpx2.AsyncHTTPTransport):
    """An HTTP transport that reports a request's outcome to its sender.

    The SDK would end the session of all users if one request's connection fails, so it receives a response instead.
    """

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        sent = CURRENT.get() or SentRequest()
        sent.note_start(has_session="mcp-session-id" in request.headers)
        try:
            response = await super().handle_async_request(request)
        except httpx2.TransportError as error:
            return _respond_failure(sent, error)
        sent.status = response.status_code
        wants_more = extract_field_from_www_auth(response, "error") == "insufficient_scope"
        if response.status_code == UNAUTHORIZED or (response.status_code == FORBIDDEN and wants_more):
            await response.aclose()
            metadata = extract_resource_metadata_from_www_auth(response)
            challenge = Challenge(metadata or "", extract_scope_from_www_auth(response) or "", wants_more=wants_more)
            text = f"it has refused the credential ({response.status_code})"
            return _respond_failure(sent, CredentialRefused(text, challenge))
        kind = response.headers.get("content-type", "").lower()
        sent.is_plain = not kind.startswith(("text/event-stream", "application/json"))
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        finish = partial(_repair_body, request=request, status=response.status_code, kind=kind)
        if response.status_code >= CLIENT_ERROR:
            response.headers["content-type"] = "application/json"
        elif not kind.startswith("application/json"):
            finish = None
        response.stream = _AnswerStream(response.stream, sent, finish, is_events=kind.startswith("text/event-stream"))
        return response


def _respond_failure(sent: SentRequest, error: httpx2.TransportError) -> httpx2.Response:
    if sent.is_opening:
        raise error
    sent.error = error
    return httpx2.Response(SERVER_ERROR)


class _AnswerStream(httpx2.AsyncByteStream):
    """A response that ends if its connection fails; the missing rest is recorded."""

    def __init__(
        self,
        stream: httpx2.AsyncByteStream,
        sent: SentRequest,
        finish: Callable[[bytes], bytes] | None,
        *,
        is_events: bool,
    ) -> None:
        """`finish` gets the whole response and returns it as it is read; None: it is read as it arrives."""
        self._stream = stream
        self._sent = sent
        self._finish = finish
        self._is_events = is_events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        decoder, seen_bytes, held = JsonDecoder(), 0, list[bytes]()
        try:
            async for piece in self._stream:
                seen_bytes += len(piece)
                # The SDK bounds each event, and their number is a matter of the call's time.
                if seen_bytes > ANSWER_BYTES_MAX and not self._is_events:
                    raise httpx2.ReadError(f"its answer is longer than {ANSWER_BYTES_MAX} bytes")
                decoded = decoder.decode(piece).encode()
                if self._finish is None:
                    yield decoded
                else:
                    held.append(decoded)
            held.append(decoder.decode(b"", final=True).encode())
            whole = b"".join(held)
            yield whole if self._finish is None else self._finish(whole)
        except (httpx2.TransportError, ValueError) as error:
            if self._sent.is_opening:
                raise
            self._sent.error = error if isinstance(error, httpx2.TransportError) else httpx2.ReadError(str(error))
            self._sent.is_cut = True
        else:
            # The SDK leaves a stream of events at the answer.
            self._sent.is_cut = self._is_events

    async def aclose(self) -> None:
        await self._stream.aclose()
