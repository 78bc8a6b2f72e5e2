"""TLS contexts for HTTP/2, and the peer's identity."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

ALPN = "h2"


def restrict_to_http2(context: ssl.SSLContext) -> ssl.SSLContext:
    """Allow `context` HTTP/2 alone, from TLS 1.2 on (https://www.rfc-editor.org/rfc/rfc9113#section-9.2)."""
    context.set_alpn_protocols([ALPN])
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def has_agreed(transport: asyncio.Transport) -> bool:
    """Whether the peer agreed to HTTP/2; without TLS its preface will tell."""
    ssl_object: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    return ssl_object is None or ssl_object.selected_alpn_protocol() == ALPN


def read_peer_identity(transport: asyncio.Transport) -> dict[str, list[bytes]]:
    """Return the names in the peer's certificate by gRPC's keys."""
    if transport.get_extra_info("ssl_object") is None:
        return {}
    found = {"transport_security_type": [b"ssl"]}
    certificate: dict[str, Any] = transport.get_extra_info("peercert") or {}
    if names := [value.encode() for _, value in certificate.get("subjectAltName", ())]:
        found["x509_subject_alternative_name"] = names
    pairs = [pair for group in certificate.get("subject", ()) for pair in group]
    if names := [value.encode() for key, value in pairs if key == "commonName"]:
        found["x509_common_name"] = names
    return found
