"""A cookie that only this suite's facades can read and create."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any, Literal

import orjson
from aiohttp import web
from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from headrace.errors import Unsupported

BYTES_MAX = 4096
"""Maximum size of a cookie in browsers, name included. https://www.rfc-editor.org/rfc/rfc6265#section-6.1"""


class SealedCookie:
    def __init__(
        self,
        name: str,
        keys: Sequence[str],
        *,
        is_secure: bool,
        same_site: Literal["Strict", "Lax"],
        lifetime_s: float,
    ) -> None:
        """The first of `keys` seals; all of them open. A cookie older than `lifetime_s` is ignored."""
        # With this prefix, browsers accept the cookie only from our own host over TLS.
        self.name = f"__Host-{name}" if is_secure else name
        digests = (hashlib.sha256(f"{name}\0{key}".encode()).digest() for key in keys)
        self._seal = MultiFernet([Fernet(base64.urlsafe_b64encode(digest)) for digest in digests])
        self._is_secure = is_secure
        self._same_site: Literal["Strict", "Lax"] = same_site
        self._lifetime_s = int(lifetime_s)

    def read(self, request: web.Request) -> dict[str, Any] | None:
        """Return the content; None if the cookie is missing or was not sealed with our keys."""
        text = request.cookies.get(self.name)
        if not text:
            return None
        try:
            return orjson.loads(self._seal.decrypt(text, ttl=self._lifetime_s))
        except (InvalidToken, ValueError):  # ValueError: the text is not ASCII
            return None

    def write(self, response: web.Response, content: dict[str, Any]) -> None:
        """Set the cookie; raise Unsupported if it is too large for browsers."""
        text = self._seal.encrypt(orjson.dumps(content)).decode()
        if len(text) + len(self.name) > BYTES_MAX:
            raise Unsupported(
                f"the session would be a cookie of {len(text)} bytes, and browsers keep {BYTES_MAX}: "
                "the provider's refresh token is too long",
                bytes=len(text),
            )
        response.set_cookie(
            self.name,
            text,
            max_age=self._lifetime_s,
            path="/",
            secure=self._is_secure,
            httponly=True,
            samesite=self._same_site,
        )

    def clear(self, response: web.Response) -> None:
        response.del_cookie(self.name, path="/", secure=self._is_secure, httponly=True, samesite=self._same_site)
