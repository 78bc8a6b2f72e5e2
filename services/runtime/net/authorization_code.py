"""Common parts of all OAuth clients here: PKCE, the address that a browser is sent to, and which addresses may get
secrets.

https://www.rfc-editor.org/rfc/rfc7636
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from urllib.parse import urlencode

_SAFE_URL = re.compile(r"https://[^\s/?#@]+([/?][^\s#]*)?|http://(127\.0\.0\.1|localhost|\[::1\])(:\d+)?([/?][^\s#]*)?")
"""Https, which is encrypted; on this machine also http."""


def make_challenge(verifier: str) -> str:
    """Return the S256 challenge of a PKCE verifier."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def add_query(url: str, query: Mapping[str, str]) -> str:
    """Return the address with these parameters appended to its query."""
    return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}"


def is_safe_url(url: str) -> bool:
    """Return whether data sent to an address cannot be read on the way."""
    return _SAFE_URL.fullmatch(url) is not None
