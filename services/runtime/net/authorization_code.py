"""What every OAuth client here does alike: PKCE, the address that a browser is sent to, and whom secrets are sent to.

https://www.rfc-editor.org/rfc/rfc7636
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from urllib.parse import urlencode

_SAFE_URL = re.compile(r"https://[^\s/?#@]+([/?][^\s#]*)?|http://(127\.0\.0\.1|localhost|\[::1\])(:\d+)?([/?][^\s#]*)?")
"""By https, where nobody reads along; on this machine also without."""


def make_challenge(verifier: str) -> str:
    """Return the S256 challenge of a PKCE verifier."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def add_query(url: str, query: Mapping[str, str]) -> str:
    """Return the address with these parameters behind those that it has."""
    return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}"


def is_safe_url(url: str) -> bool:
    """Return whether nobody on the way reads what is sent to an address."""
    return _SAFE_URL.fullmatch(url) is not None
