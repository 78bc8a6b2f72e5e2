"""Settings of sign-in to the console."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from services.runtime.auth.settings import AuthSettings
from services.runtime.net.authorization_code import is_safe_url

KEY_CHARS_MIN = 32

REFRESH_S_MIN = 1.0

NO_DEFAULT_PORT = r"(?!https://.*:443$|http://.*:80$)"
"""What precedes an origin's pattern: browsers leave out the default port of its scheme."""

_ORIGIN = re.compile(rf"{NO_DEFAULT_PORT}(https://[a-z0-9.-]+|http://(localhost|127\.0\.0\.1))(:\d{{1,5}})?")
"""Format of the public address, equal to a browser's Origin header. Plain HTTP is allowed only on this machine."""


def _setting(default: Any, name: str, *, secret: bool = False) -> Any:
    return field(default=default, metadata={"name": f"HEADRACE_FACADE_{name}", "secret": secret}, repr=not secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInSettings:
    """Settings of sign-in; HEADRACE_AUTH_JWT_*_CLAIM and _ROLE_SCOPES name the claims of tenant, roles and scopes."""

    oidc_issuer: str = _setting("", "OIDC_ISSUER")
    """Issuer of the OpenID provider with which users sign in to the console, exactly as in its tokens:
    `https://login.example/realms/acme`. Empty: users present a key or a token.
    """

    oidc_client_id: str = _setting("", "OIDC_CLIENT_ID")
    """Client id of this facade at the provider."""

    oidc_client_secret: str = _setting("", "OIDC_CLIENT_SECRET", secret=True)
    """Client secret; empty for a public client, which only PKCE protects."""

    oidc_scopes: str = _setting("openid", "OIDC_SCOPES")
    """Scopes to request from the provider, separated by spaces: `openid`, plus the scopes that add the claims
    for tenant and roles, and a refresh token (`offline_access` at many providers). Without a refresh token a
    session ends with its ID token.
    """

    public_url: str = _setting("", "PUBLIC_URL")
    """The console's public address: `https://agents.example`. Register `<it>/auth/callback` (sign-in) and
    `<it>/` (sign-out) at the provider.
    """

    session_keys: str = _setting("", "SESSION_KEYS", secret=True)
    """Secrets of at least 32 characters that seal session cookies, separated by commas, the same for all
    replicas. The first one seals; all are tried for opening. To rotate, add a new one in front and remove the
    old one a day later.
    """

    session_refresh_s: float = _setting(300.0, "SESSION_REFRESH_S")
    """Seconds after which a session and its roles are refreshed at the provider; an ID token that expires
    earlier ends the interval earlier.
    """

    session_s_max: float = _setting(43200.0, "SESSION_S_MAX")
    """Seconds after which a user must sign in again, regardless of the provider."""

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
                f"HEADRACE_FACADE_PUBLIC_URL: {self.public_url!r}: expected https://host, or https://host:port with "
                "another port than 443"
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
        """Return the secrets of `session_keys`."""
        return [key.strip() for key in self.session_keys.split(",")]

    @property
    def callback_url(self) -> str:
        return f"{self.public_url}/auth/callback"

    def check_auth(self, auth: AuthSettings) -> None:
        """Raise ValueError if sign-in is on but authentication is off."""
        if self.is_on and auth.is_none:
            raise ValueError(
                "HEADRACE_AUTH: none, but HEADRACE_FACADE_OIDC_ISSUER turns on sign-in: set api_key or jwt"
            )
