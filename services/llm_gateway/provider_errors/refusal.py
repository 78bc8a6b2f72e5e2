"""Converts a provider's refusal into one of our errors, with secrets masked."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec

from headrace.errors import (
    ContentFiltered,
    ContextLengthExceeded,
    HeadraceError,
    InvalidRequest,
    Overloaded,
    ProviderAuthentication,
    ProviderUnavailable,
    RateLimited,
)
from services.llm_gateway.provider_errors.error_patterns import (
    find_row,
    parse_time_s,
    parse_wait_s,
    parse_window_tokens,
)
from services.runtime.telemetry.masking import mask_secrets

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Exceptions from decoding foreign bytes."""

NEVER_STREAMS = frozenset({"application/problem+json", "application/xml", "text/xml", "text/html"})
"""Media types of refusals with status 200, or of pages from a proxy in front of the provider."""

ACCOUNT, EMPTY = "account", "empty"
"""Metadata of an error for an account without credit; another account may have some."""

MESSAGE_CHARS_MAX = 500
"""Maximum length of a message; a longer one is an HTML page, or repeats the request."""

PARAM_CHARS_MAX = 128

NO_PARAMS = ("", "None", "null", "validation_error")
"""Values of `param` that name no field: LiteLLM's texts of none, and Cerebras's constant
(https://github.com/Cerebras/cerebras-cloud-sdk-python/issues/4, 2025-03)."""

ELSEWHERE = frozenset({301, 302, 303, 307, 308, 404, 405, 410})
"""Statuses of addresses that are not the API's."""


_RETRY_DELAY = re.compile(rb'"retryDelay"\s*:\s*"(\d{1,6}(?:\.\d{1,9})?)s"')

_VIOLATION = re.compile(rb'"field"\s*:\s*"([^"\\]{1,128})"')

_LOCATION = re.compile(rb'"loc\\?"\s*:\s*\[([^\]]{1,256})\]')

_NAME = re.compile(r"[A-Za-z_]\w*")

_EXHAUSTED = re.compile(r"\br(?:emaining)?=0\b.{0,40}?\b(?:t|reset)=(\d{1,9})")
"""An exhausted limit in the header RateLimit, as in `"api";r=0;t=55` of Hugging Face
(https://github.com/huggingface/huggingface_hub/issues/3553, 2025-11)."""

_CALLERS = re.compile(r"\b(?:invalid|unsupported|empty|image|failed_to_download)_")
"""Matches codes of errors in a stream that name the caller's mistake, such as `invalid_image_format`
(https://developers.openai.com/api/reference/resources/responses, "ResponseError", 2026-11)."""

_TAG = re.compile(r"<[^<>]*>")

_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32


class ErrorObject(msgspec.Struct):
    message: str | None = None
    type: str | None = None
    code: str | int | None = None
    param: msgspec.Raw = msgspec.Raw()
    """The wrong field of the request; mostly a text."""

    status: str | int | None = None
    """Google's name for the kind."""

    metadata: msgspec.Raw = msgspec.Raw()
    """OpenRouter puts the upstream provider's error here."""

    details: msgspec.Raw = msgspec.Raw()
    """Google puts the time to wait and the wrong fields here."""

    def __bool__(self) -> bool:
        """False for the empty object that relays such as one-api send next to an answer."""
        return bool(self.message or self.type or self.code or self.status or self.metadata or self.details)


@dataclass(frozen=True, slots=True)
class Refusal:
    provider: str
    model: str

    status: int
    """HTTP status; 200 for an error inside a stream."""

    message: str
    type_and_code: str

    retry_after_s: float | None = None
    param: str = ""
    """The field of the request that the error names."""

    address: str = ""
    """The address that answered, if it does not seem to be the API's."""


class _ErrorBody(msgspec.Struct):
    error: ErrorObject | str | None = None
    message: str | None = None
    detail: str | None = None
    code: str | int | None = None
    type: str | None = None
    param: msgspec.Raw = msgspec.Raw()


class _Metadata(msgspec.Struct):
    headers: dict[str, str]


def read_refusal(provider: str, model: str, status: int, headers: Mapping[str, str], body: bytes, url: str) -> Refusal:
    error_body = _decode_body(headers, body)
    error = (
        error_body.error
        if isinstance(error_body.error, ErrorObject)
        else ErrorObject(code=error_body.code, type=error_body.type, param=error_body.param)
    )
    text = (
        error_body.error
        if isinstance(error_body.error, str)
        else error.message or error_body.message or error_body.detail or body.decode(errors="replace")
    )
    behind = _read_behind(error)
    text = f"{text}: {behind}" if behind and behind not in text else text
    # AWS puts the kind of an error into a header.
    kind = error.type or headers.get("x-amzn-errortype", "").partition(":")[0]
    words = f"{kind} {error.status or ''} {error.code or ''}"
    retry_after_s = _parse_retry_after(headers)
    retry_after_s = _find_retry_delay(error) if retry_after_s is None else retry_after_s
    if status == 429 and retry_after_s is None:
        retry_after_s = _find_reset(headers, error)
    is_strange = model not in text if status in ELSEWHERE else status == 200 and not _is_error(body)
    address = find_address(url) if is_strange else ""
    return Refusal(
        provider, model, status, text, words, retry_after_s, _read_param(error) or _find_location(body), address
    )


def find_address(url: str) -> str:
    """Return the address without what may be secret: user, password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _is_error(body: bytes) -> bool:
    """Return whether a body has the form of an API's error."""
    with suppress(*UNREADABLE):
        decoded = msgspec.json.decode(body, type=dict[str, Any])
        return any(decoded.get(name) for name in ("error", "message", "detail"))
    return False


def _decode_body(headers: Mapping[str, str], body: bytes) -> _ErrorBody:
    try:
        # Gemini's OpenAI-compatible API answers with a list of one.
        decoded = msgspec.json.decode(body, type=_ErrorBody | list[_ErrorBody])
    except UNREADABLE:
        return _ErrorBody(message=_describe_body(headers, body))
    if isinstance(decoded, list):
        return decoded[0] if decoded else _ErrorBody()
    return decoded


def _read_behind(error: ErrorObject) -> str:
    """Return the message of a gateway's upstream provider; empty if the gateway has none.

    https://openrouter.ai/docs/api-reference/errors (2026-11): `metadata.raw` is its body, mostly as a text.
    """
    try:
        raw = msgspec.json.decode(error.metadata)["raw"] if error.metadata else ""
        found = msgspec.json.decode(raw) if isinstance(raw, str) and raw.lstrip().startswith("{") else raw
    except (*UNREADABLE, KeyError, TypeError):
        return ""
    if not isinstance(found, dict):
        return found if isinstance(found, str) else ""
    error_of_it: Any = found.get("error")
    inner: dict[str, Any] = error_of_it if isinstance(error_of_it, dict) else found
    words = [inner.get(name) for name in ("type", "code", "message")]
    return " ".join(str(word) for word in words if isinstance(word, str | int) and word)


def _read_param(error: ErrorObject) -> str:
    try:
        param = msgspec.json.decode(error.param) if error.param else ""
    except UNREADABLE:
        return ""
    if isinstance(param, str) and param not in NO_PARAMS:
        return param[:PARAM_CHARS_MAX]
    match = _VIOLATION.search(bytes(error.details))
    return match[1].decode(errors="replace") if match else ""


def _find_location(body: bytes) -> str:
    """Return the field that a server in Python names, as in `"loc": ["body", "tool_choice"]`."""
    match = _LOCATION.search(body)
    names = _NAME.findall(match[1].decode(errors="replace")) if match else []
    return ".".join(name for name in names if name != "body")[:PARAM_CHARS_MAX]


def _find_retry_delay(error: ErrorObject) -> float | None:
    """Return Google's `retryDelay`, as in "34s" or "34.07s" (https://cloud.google.com/apis/design/errors, 2026-11)."""
    match = _RETRY_DELAY.search(bytes(error.details))
    return float(match[1]) if match else None


def find_media_type(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def find_coding(headers: Mapping[str, str]) -> str:
    """Return the Content-Encoding of a compressed body; empty for an uncompressed one."""
    coding = headers.get("content-encoding", "").strip().lower()
    return "" if coding == "identity" else coding


def make_packed_error(provider: str, model: str, coding: str) -> HeadraceError:
    """Return the error of a stream with a content coding, which would delay parts of it."""
    what = f"a stream with content-encoding {coding!r}, though 'identity' was asked for; look for a proxy in between"
    return make_error(Refusal(provider, model, 200, what, ""))


def unpack_body(headers: Mapping[str, str], body: bytes, bytes_max: int) -> bytes:
    """Return the first `bytes_max` bytes of a body; unchanged if its coding is unknown or broken."""
    if find_coding(headers) not in ("gzip", "x-gzip", "deflate"):
        return body
    try:
        return zlib.decompressobj(_GZIP_OR_ZLIB).decompress(body, bytes_max)
    except zlib.error:
        return body


def _describe_body(headers: Mapping[str, str], body: bytes) -> str:
    """Return a body that is not JSON as text; of a web page, its words."""
    if not body:
        return f"a redirect to {place}" if (place := headers.get("location")) else "without a body"
    text, media_type = body.decode(errors="replace"), find_media_type(headers)
    if text.lstrip()[:9].lower().startswith(("<!doctype", "<html")):
        media_type = "text/html"
    if media_type not in NEVER_STREAMS:
        return text
    return f"{media_type}: {' '.join(_TAG.sub(' ', text).split())}"


def read_stream_error(provider: str, model: str, error: ErrorObject | str) -> Refusal:
    """Read an error of a 200 stream; a numeric code counts as status."""
    if isinstance(error, str):
        return Refusal(provider, model, 200, error, "")
    code = str(error.code or "")
    status = int(code) if re.fullmatch(r"[45]\d\d", code) else 200
    message = ": ".join(filter(None, (error.message, _read_behind(error))))
    return Refusal(
        provider, model, status, message, f"{error.type or ''} {error.status or ''} {code}", _find_retry_delay(error)
    )


def make_error(refusal: Refusal, *secrets: str) -> HeadraceError:
    row = find_row(f"{refusal.type_and_code} {refusal.message}")
    cls = _choose_class(refusal, None if row is None else row.means)
    message = mask_secrets(refusal.message, *secrets)[:MESSAGE_CHARS_MAX].strip() or "no message"
    place = f" at {mask_secrets(refusal.address, *secrets)} (check its baseUrl)" if refusal.address else ""
    error = cls(
        f"provider {refusal.provider!r} answered {refusal.status} for model {refusal.model!r}{place}: {message}",
        retry_after_s=parse_wait_s(refusal.message) if refusal.retry_after_s is None else refusal.retry_after_s,
        provider=refusal.provider,
        model=refusal.model,
        httpStatus=refusal.status,
    )
    if refusal.param:
        error.metadata["param"] = mask_secrets(refusal.param, *secrets)
    if cls is ContextLengthExceeded:
        error.metadata |= parse_window_tokens(refusal.message)
    if cls is ProviderAuthentication and (refusal.status == 402 or (row is not None and row.account_is_empty)):
        error.metadata[ACCOUNT] = EMPTY
    return error


def _choose_class(refusal: Refusal, by_words: type[HeadraceError] | None) -> type[HeadraceError]:
    match refusal.status:
        case 401 | 402:
            return ProviderAuthentication
        case 403:
            return by_words if by_words in (ContentFiltered, RateLimited) else ProviderAuthentication
        case 429:
            return by_words if by_words in (ProviderAuthentication, ContextLengthExceeded) else RateLimited
        case 200 | 400 | 404 | 412 | 413 | 422 | 500 if by_words is not None:
            return by_words
        case 413:
            return ContextLengthExceeded
        case 502 | 503 if by_words is ContextLengthExceeded:
            return ContextLengthExceeded  # LiteLLM passes a provider's 400 on as a 503
        case 498 | 503 | 529:
            return Overloaded
        case 408 | 409 | 424 | 499:
            return ProviderUnavailable
        case status:
            is_callers_fault = 400 <= status < 500 or _CALLERS.search(refusal.type_and_code) is not None
            return InvalidRequest if is_callers_fault else ProviderUnavailable


def _parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Parse Retry-After (RFC 9110) or OpenAI's retry-after-ms."""
    if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", milliseconds := headers.get("retry-after-ms", "")):
        return float(milliseconds) / 1000
    return parse_time_s(headers.get("retry-after", "").strip())


def _find_reset(headers: Mapping[str, str], error: ErrorObject) -> float | None:
    """Return the wait until the last exhausted limit is reset, as in `x-ratelimit-reset-requests`.

    https://platform.openai.com/docs/guides/rate-limits (2026-11); OpenRouter puts the headers into `metadata`.
    """
    with suppress(*UNREADABLE):
        if error.metadata:
            headers = {**headers, **msgspec.json.decode(error.metadata, type=_Metadata).headers}
    values = {name.lower(): value for name, value in headers.items() if "ratelimit" in name.lower()}
    if (match := _EXHAUSTED.search(values.get("ratelimit", ""))) is not None:
        return float(match[1])
    waits = [
        parse_time_s(value.strip()) or 0.0
        for name, value in values.items()
        if "reset" in name and values.get(name.replace("reset", "remaining")) == "0"
    ]
    return max(waits, default=0.0) or None
