"""Settings of people's sign-in."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from services.runtime.auth.settings import AuthSettings
from services.runtime.net.authorization_code import is_safe_url

KEY_CHARS_MIN = 32

REFRESH_S_MIN = 1.0

_ORIGIN = re.compile(r"https://[a-z0-9.-]+(:\d{1,5})?|http://(localhost|127\.0\.0\.1)(:\d{1,5})?")
"""A public address: what a browser writes in the header Origin. Plain HTTP for this machine alone."""


def _setting(default: Any, name: str, *, secret: bool = False) -> Any:
    return field(default=default, metadata={"name": f"HEADRACE_FACADE_{name}", "secret": secret}, repr=not secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInSettings:
    """Which claims name tenant, roles and scopes, is said for all tokens: HEADRACE_AUTH_JWT_*_CLAIM, _ROLE_SCOPES."""

    oidc_issuer: str = _setting("", "OIDC_ISSUER")
    """The OpenID provider by which people sign in at the console, as its tokens name it:
    `https://login.example/realms/acme`. Empty: they show a key or a token."""

    oidc_client_id: str = _setting("", "OIDC_CLIENT_ID")
    """The name under which the provider knows this facade."""

    oidc_client_secret: str = _setting("", "OIDC_CLIENT_SECRET", secret=True)
    """The client's secret; empty for a client that is public at the provider, which PKCE alone protects."""

    oidc_scopes: str = _setting("openid", "OIDC_SCOPES")
    """What the provider is asked for, words with spaces between: `openid`, and what makes it give the claims that name
    tenant and roles, and a refresh token (`offline_access` at many). Without a refresh token a session ends with its ID
    token."""

    public_url: str = _setting("", "PUBLIC_URL")
    """The console's address as browsers have it: `https://agents.example`. The provider must know
    `<it>/auth/callback` to sign in and `<it>/` to sign out."""

    session_keys: str = _setting("", "SESSION_KEYS", secret=True)
    """Secrets of 32 characters or more that seal the cookies of sessions, separated by commas, the same for all
    replicas: the first seals, all are tried to open. To change it put a new one first, and take the old one away a day
    later."""

    session_refresh_s: float = _setting(300.0, "SESSION_REFRESH_S")
    """Seconds after which the provider is asked whether a session still holds, and with which roles; its ID tokens'
    own end counts where that is earlier."""

    session_s_max: float = _setting(43200.0, "SESSION_S_MAX")
    """Seconds after which a person has to sign in again, whatever the provider says."""

    def __post_init__(self) -> None:
        if not self.is_on:
            return
        for name in ("oidc_client_id", "public_url", "session_keys"):
            if not getattr(self, name):
                raise ValueError(f"HEADRACE_FACADE_{name.upper()}: HEADRACE_FACADE_OIDC_ISSUER needs it")
        if not is_safe_url(self.oidc_issuer):
            raise ValueError("HEADRACE_FACADE_OIDC_ISSUER: expected https://…")
        if not _ORIGIN.fullmatch(self.public_url):
            raise ValueError(
                f"HEADRACE_FACADE_PUBLIC_URL: {self.public_url!r}: expected https://host or https://host:port"
            )
        if any(len(key) < KEY_CHARS_MIN for key in self.keys):
            raise ValueError(f"HEADRACE_FACADE_SESSION_KEYS: expected {KEY_CHARS_MIN} characters or more, each")
        if "openid" not in self.oidc_scopes.split():
            raise ValueError("HEADRACE_FACADE_OIDC_SCOPES: expected openid among them")
        if not REFRESH_S_MIN <= self.session_refresh_s <= self.session_s_max:
            raise ValueError("HEADRACE_FACADE_SESSION_REFRESH_S: expected 1 or more, and SESSION_S_MAX at most")

    @property
    def is_on(self) -> bool:
        return bool(self.oidc_issuer)

    @property
    def is_secure(self) -> bool:
        return self.public_url.startswith("https://")

    @property
    def keys(self) -> list[str]:
        """The secrets of `session_keys`."""
        return [key.strip() for key in self.session_keys.split(",")]

    @property
    def callback_url(self) -> str:
        return f"{self.public_url}/auth/callback"

    def check_auth(self, auth: AuthSettings) -> None:
        """Raise ValueError where everybody is let in all the same."""
        if self.is_on and auth.is_none:
            raise ValueError(
                "HEADRACE_AUTH: none, and HEADRACE_FACADE_OIDC_ISSUER wants people to sign in: set api_key or jwt"
            )
