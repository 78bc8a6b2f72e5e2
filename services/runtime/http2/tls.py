"""TLS contexts for HTTP/2, and the peer's identity."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

ALPN = "h2"

PEER_URIS = "x509_uri_names"
"""Key of only the URI names in a peer's certificate: a name that is valid in a URI is not valid as a DNS or e-mail
name."""


def restrict_to_http2(context: ssl.SSLContext) -> ssl.SSLContext:
    """Restrict `context` to HTTP/2, from TLS 1.2 on (https://www.rfc-editor.org/rfc/rfc9113#section-9.2).

    The key exchange is the one that every TLS 1.3 implementation has
    (https://www.rfc-editor.org/rfc/rfc8446#section-9.1).
    """
    context.set_alpn_protocols([ALPN])
    # By default a peer may request ffdhe8192, 160 ms of processor time for 1.3 kB (CVE-2002-20001, OpenSSL 3.0). Python
    # accepts one name here, a list from 3.15 on.
    context.set_ecdh_curve("prime256v1")
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def has_agreed(transport: asyncio.Transport) -> bool:
    """Return whether the peer agreed to HTTP/2; without TLS its preface decides."""
    ssl_object: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    return ssl_object is None or ssl_object.selected_alpn_protocol() == ALPN


def read_peer_identity(transport: asyncio.Transport) -> dict[str, list[bytes]]:
    """Return the names in the peer's certificate, by gRPC's keys."""
    if transport.get_extra_info("ssl_object") is None:
        return {}
    found = {"transport_security_type": [b"ssl"]}
    certificate: dict[str, Any] = transport.get_extra_info("peercert") or {}
    # A directory name is a tuple, and does not name a caller.
    names = [(kind, value) for kind, value in certificate.get("subjectAltName", ()) if isinstance(value, str)]
    if names:
        found["x509_subject_alternative_name"] = [value.encode() for _, value in names]
    found[PEER_URIS] = [value.encode() for kind, value in names if kind == "URI"]
    pairs = [pair for group in certificate.get("subject", ()) for pair in group]
    if names := [value.encode() for key, value in pairs if key == "commonName"]:
        found["x509_common_name"] = names
    return found
