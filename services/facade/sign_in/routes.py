"""The sign-in routes: redirect to the provider and back, session description, refresh, sign-out."""

from __future__ import annotations

import hmac
import html
import secrets
from http import HTTPStatus

import structlog
from aiohttp import web

from headrace.errors import HeadraceError, Overloaded, Unauthenticated
from services.facade.responses import envelope
from services.facade.sign_in.provider import OpenIdProvider
from services.facade.sign_in.sealed_cookie import SealedCookie
from services.facade.sign_in.sessions import Session, Sessions
from services.facade.sign_in.settings import SignInSettings
from services.runtime.auth.audit_records import RefusedSignIns
from services.runtime.auth.settings import AuthSettings
from services.runtime.net.authorization_code import make_challenge

COOKIE = "headrace-sign-in"
SIGN_IN_S = 600.0
"""Maximum time that a user may spend on the provider's page."""

PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Sign-in did not work</title>
<h1>Sign-in did not work</h1>
<p>{problem}.
<p><a href="/auth/sign-in">Try again</a>, or go <a href="/">back to the console</a>.
</html>
"""

log = structlog.get_logger()


class SignIn:
    def __init__(self, settings: SignInSettings, auth: AuthSettings, refused: RefusedSignIns) -> None:
        self._refused = refused
        self._provider = OpenIdProvider(settings, auth)
        self.sessions = Sessions(settings, self._provider)
        # Lax, because the browser must send it when it returns from the provider's page.
        self._cookie = SealedCookie(
            COOKIE, settings.keys, is_secure=settings.is_secure, same_site="Lax", lifetime_s=SIGN_IN_S
        )
        self._issuer = settings.oidc_issuer

    async def begin(self, _: web.Request) -> web.StreamResponse:
        """Redirect the browser to the provider."""
        state, nonce, code_verifier = (secrets.token_urlsafe(32) for _ in range(3))
        try:
            url = await self._provider.build_sign_in_url(state, nonce, make_challenge(code_verifier))
        except HeadraceError as error:
            return _show_problem(error)
        response = _redirect(url)
        self._cookie.write(response, {"state": state, "nonce": nonce, "verifier": code_verifier})
        return response

    async def finish(self, request: web.Request) -> web.StreamResponse:
        """Handle the return from the provider: redeem its code and start a session."""
        response = _redirect("/")
        try:
            session = await self._open_session(request)
            self.sessions.save(response, session)
            log.info("signed in", tenant=session.identity.tenant, user=session.identity.user)
        except HeadraceError as error:
            if isinstance(error, Unauthenticated):
                self._refused.note(request.remote or "")
            log.info("sign-in refused", problem=str(error))
            response = _show_problem(error)
        self._cookie.clear(response)
        return response

    async def describe(self, request: web.Request) -> web.StreamResponse:
        """Answer whether sign-in is on, and with the session if the user is signed in."""
        return _wrap_session(self.sessions.read(request))

    async def refresh(self, request: web.Request) -> web.StreamResponse:
        """Refresh the session and its roles at the provider."""
        self.sessions.check_origin(request)
        session = self.sessions.read(request)
        if session is None or not session.refresh_token:
            raise Unauthenticated("there is no session to refresh; sign in again")
        try:
            session = await self.sessions.refresh(session)
        except Unauthenticated as error:
            self._refused.note(request.remote or "")
            response = envelope.wrap_error(error)
            self.sessions.clear(response)
            return response
        response = _wrap_session(session)
        self.sessions.save(response, session)
        return response

    async def end(self, request: web.Request) -> web.StreamResponse:
        """End the session here, and answer with the URL at which the provider ends its own."""
        self.sessions.check_origin(request)
        session = self.sessions.read(request)
        url = ""
        try:
            if session is not None:
                await self._provider.revoke(session.refresh_token)
            url = await self._provider.build_sign_out_url()
        except Overloaded as error:  # the cookie is cleared anyway
            log.warning("signed out here alone", problem=str(error))
        response = envelope.wrap_data({"url": url})
        self.sessions.clear(response)
        return response

    async def _open_session(self, request: web.Request) -> Session:
        flow, query = self._cookie.read(request), request.query
        if flow is None or not hmac.compare_digest(query.get("state", "").encode(), str(flow.get("state")).encode()):
            raise Unauthenticated("this sign-in was not started in this browser, or has taken too long")
        description = await self._provider.describe()
        if (query.get("iss") or ("" if description.names_itself else self._issuer)) != self._issuer:
            raise Unauthenticated("the answer is of another provider")
        if "code" not in query:
            raise Unauthenticated(f"the provider has refused: {query.get('error', 'without a reason')[:64]}")
        grant = await self._provider.redeem_code(query["code"], flow["verifier"], flow["nonce"])
        return self.sessions.open(grant)


def _wrap_session(session: Session | None) -> web.Response:
    """Answer with the parts of a session that the console may see."""
    shown: dict[str, object] = {"signIn": True}
    if session is not None:
        shown["session"] = {
            "user": session.identity.user,
            "tenant": session.identity.tenant,
            "goodUntil": round(session.good_until_s * 1000),
            "ends": round(session.ends_s * 1000),
            "canRefresh": bool(session.refresh_token),
        }
    return envelope.wrap_data(shown)


def _redirect(url: str) -> web.Response:
    return web.Response(status=HTTPStatus.SEE_OTHER, headers={"Location": url, "Referrer-Policy": "no-referrer"})


def _show_problem(error: HeadraceError) -> web.Response:
    status = envelope.HTTP_STATUS[error.code]
    problem = error.message[:1].upper() + error.message[1:]
    text = PAGE.format(problem=html.escape(problem, quote=False))
    return web.Response(status=status, text=text, content_type="text/html", headers=PAGE_HEADERS)
