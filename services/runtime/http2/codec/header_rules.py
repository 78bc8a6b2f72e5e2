"""HTTP/2's rules for header lists of foreign encoders, checked a header at a time.

https://www.rfc-editor.org/rfc/rfc9113#section-8.2
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from h2.exceptions import ProtocolError

_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_VALUE = re.compile(rb"(?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?")

_OF_CONNECTIONS = frozenset({b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"})

REQUEST = frozenset({b":method", b":scheme", b":path", b":authority"})
_NEEDED = (b":method", b":scheme", b":path")
RESPONSE = frozenset({b":status"})
TRAILERS = frozenset[bytes]()


def check_headers(headers: Iterable[tuple[bytes, bytes]], pseudo: frozenset[bytes]) -> None:
    """Check a list that may have the pseudo-headers `pseudo`.

    Raises:
        ProtocolError: It breaks a rule.
    """
    seen: dict[bytes, bytes] = {}
    is_pseudo = True
    for name, value in headers:
        if name[:1] == b":":
            if not is_pseudo:
                raise ProtocolError(f"the pseudo-header {name!r} is out of sequence")
            if name not in pseudo or name in seen:
                raise ProtocolError(f"the pseudo-header {name!r} is not defined here, or given twice")
            seen[name] = value
        else:
            is_pseudo = False
            if not _NAME.fullmatch(name):
                raise ProtocolError(f"the header name {name[:64]!r} is not valid")
            if name in _OF_CONNECTIONS or (name == b"te" and value.lower() != b"trailers"):
                raise ProtocolError(f"the header {name!r} is about a connection")
            if name == b"host" and seen.setdefault(b":authority", value) != value:
                raise ProtocolError("the headers :authority and host differ")
        if not _VALUE.fullmatch(value):
            raise ProtocolError(f"the value of {name[:64]!r} is not valid")
    if seen.get(b":method") == b"CONNECT":
        if b":scheme" in seen or b":path" in seen:
            raise ProtocolError("CONNECT has neither :scheme nor :path")
    elif pseudo is REQUEST and not all(seen.get(name) for name in _NEEDED):
        raise ProtocolError("a request needs :method, :scheme and :path")
    if pseudo is REQUEST and b":authority" not in seen:
        raise ProtocolError("a request needs :authority or host")
    if pseudo is RESPONSE and not seen:
        raise ProtocolError("a response needs :status")
