"""Sessions of signed-in users: identity in a sealed cookie, no state on any server.

A session is valid for some minutes at a time (`session_refresh_s`); then it must be refreshed at the provider.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, replace
from typing import Any

from aiohttp import web

from headrace.errors import CredentialEnded, Overloaded, PermissionDenied
from services.facade.sign_in.provider import OpenIdProvider, SignedIn
from services.facade.sign_in.sealed_cookie import SealedCookie
from services.facade.sign_in.settings import SignInSettings
from services.runtime.auth.identity import Identity
from services.runtime.clock import now_s

COOKIE = "headrace-session"

TAKEN = "/api/"
"""Paths that accept a session; other routes are for programs, which send keys or tokens."""

REFRESHES_MAX = 1_000
KEPT_S = 10.0
"""How long the result of a refresh is reused. A provider that rotates refresh tokens treats an old one as
stolen when a second tab sends it.
"""


@dataclass(frozen=True, slots=True)
class Session:
    identity: Identity
    good_until_s: float
    ends_s: float
    """Unix seconds at which the user must sign in again; `good_until_s` is when the session must be refreshed."""

    refresh_token: str

    @property
    def is_good(self) -> bool:
        return now_s() < self.good_until_s


class Sessions:
    def __init__(self, settings: SignInSettings, provider: OpenIdProvider) -> None:
        self._settings = settings
        self._provider = provider
        self._cookie = SealedCookie(
            COOKIE,
            settings.keys,
            is_secure=settings.is_secure,
            same_site="Strict",
            lifetime_s=settings.session_s_max,
        )
        self._refreshes: dict[bytes, asyncio.Task[SignedIn]] = {}

    def identify(self, request: web.Request) -> Identity | None:
        """Return the identity of a request's session; None without a session, or if the path does not accept one.

        Raises:
            CredentialEnded: The session must be refreshed.
            PermissionDenied: A page of another origin uses it.
        """
        session = self.read(request) if request.path.startswith(TAKEN) else None
        if session is None:
            return None
        self.check_origin(request)
        if not session.is_good:
            raise CredentialEnded("the session must be refreshed: POST /auth/refresh, or sign in again")
        return replace(session.identity, ends_at=int(session.good_until_s * 1000))

    def check_origin(self, request: web.Request) -> None:
        """Raise PermissionDenied if a page of another origin uses the browser's cookie."""
        if request.headers.get("Origin", self._settings.public_url) != self._settings.public_url:
            raise PermissionDenied("a session is for the console's own pages")

    def read(self, request: web.Request) -> Session | None:
        """Return the session in a request's cookie, which may need a refresh; None if there is none or it has
        ended.
        """
        content = self._cookie.read(request)
        session = _read_session(content) if content is not None else None
        return session if session is not None and now_s() < session.ends_s else None

    def open(self, grant: SignedIn) -> Session:
        """Start a session."""
        return self._build(grant, now_s() + self._settings.session_s_max)

    async def refresh(self, session: Session) -> Session:
        """Refresh a session; raise Unauthenticated if the provider refuses, Overloaded if it cannot be reached."""
        return self._build(await self._refresh_once(session.refresh_token), session.ends_s)

    def save(self, response: web.Response, session: Session) -> None:
        """Store the session in the browser; raise Unsupported if its cookie would be too large."""
        self._cookie.write(response, _describe_session(session))

    def clear(self, response: web.Response) -> None:
        """Remove the session from the browser."""
        self._cookie.clear(response)

    def _build(self, grant: SignedIn, ends_s: float) -> Session:
        # Without a refresh token, the session cannot be checked before the ID token expires.
        wanted_s = now_s() + self._settings.session_refresh_s if grant.refresh_token else grant.expires_s
        return Session(grant.identity, min(wanted_s, grant.expires_s, ends_s), ends_s, grant.refresh_token)

    async def _refresh_once(self, refresh_token: str) -> SignedIn:
        name = hashlib.sha256(refresh_token.encode()).digest()
        refreshing = self._refreshes.get(name)
        if refreshing is None:
            if len(self._refreshes) >= REFRESHES_MAX:
                raise Overloaded("too many sessions are being refreshed; try again in a moment")
            refreshing = self._refreshes[name] = asyncio.create_task(self._provider.refresh(refresh_token))
            refreshing.add_done_callback(lambda task: self._forget_later(name, task))
        # A caller that disconnects must not cancel the refresh for the others.
        return await asyncio.shield(refreshing)

    def _forget_later(self, name: bytes, task: asyncio.Task[SignedIn]) -> None:
        failed = task.cancelled() or task.exception() is not None
        asyncio.get_running_loop().call_later(0 if failed else KEPT_S, self._refreshes.pop, name, None)


def _describe_session(session: Session) -> dict[str, Any]:
    who = session.identity
    return {
        "tenant": who.tenant,
        "user": who.user,
        "credential": who.credential,
        "roles": sorted(who.roles),
        "scopes": sorted(who.scopes),
        "good": session.good_until_s,
        "ends": session.ends_s,
        "token": session.refresh_token,
    }


def _read_session(content: dict[str, Any]) -> Session | None:
    """Return the session stored in a cookie; None if another version wrote it in another format."""
    try:
        roles, scopes = frozenset(content["roles"]), frozenset(content["scopes"])
        who = Identity(content["tenant"], content["user"], content["credential"], roles, scopes)
        session = Session(who, float(content["good"]), float(content["ends"]), content["token"])
    except (KeyError, TypeError, ValueError):
        return None
    return session if who.is_valid else None
