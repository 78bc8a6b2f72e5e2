"""Signatures of requests to S3: AWS Signature Version 4.

https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html; tests hold it against botocore's.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class Key:
    """What requests are signed with."""

    id: str
    secret: str = field(repr=False)
    session_token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Unsigned:
    """A request before it is signed."""

    method: str
    host: str
    """With the port, if it is not the scheme's own."""
    path: str
    """As it is sent: quoted by `quote_path`."""
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Those to be signed beside the host; their names in lower case."""
    payload_sha256: str


def quote_path(path: str) -> str:
    return quote(path, safe="/-_.~")


def quote_query(query: Mapping[str, str]) -> str:
    return "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in sorted(query.items()))


def sign_request(request: Unsigned, key: Key, region: str, time: datetime) -> dict[str, str]:
    """Return the headers with which to send the request, the host excepted."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ")
    signed = {**request.headers, "x-amz-content-sha256": request.payload_sha256, "x-amz-date": stamp}
    if key.session_token:
        signed["x-amz-security-token"] = key.session_token
    canonical = sorted({**signed, "host": request.host}.items())
    names = ";".join(name for name, _ in canonical)
    lines = [
        request.method,
        request.path,
        quote_query(request.query),
        *(f"{name}:{value.strip()}" for name, value in canonical),
        "",
        names,
        request.payload_sha256,
    ]
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    signing_key = f"AWS4{key.secret}".encode()
    for part in scope.split("/"):
        signing_key = _hash(signing_key, part).digest()
    signature = _hash(signing_key, "\n".join((_ALGORITHM, stamp, scope, digest))).hexdigest()
    signed["authorization"] = f"{_ALGORITHM} Credential={key.id}/{scope}, SignedHeaders={names}, Signature={signature}"
    return signed


def _hash(key: bytes, text: str) -> hmac.HMAC:
    return hmac.new(key, text.encode(), hashlib.sha256)
