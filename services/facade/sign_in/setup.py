"""Adds sign-in to the facade if its settings turn it on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from services.facade.responses import envelope
from services.facade.sign_in.settings import SignInSettings
from services.runtime.auth.audit_records import RefusedSignIns
from services.runtime.auth.settings import AuthSettings

if TYPE_CHECKING:
    from services.facade.sign_in.sessions import Sessions


def add_sign_in(
    router: web.UrlDispatcher, settings: SignInSettings, auth: AuthSettings, refused: RefusedSignIns
) -> Sessions | None:
    """Add the /auth/ routes and return the sessions.

    With sign-in off, only /auth/session is served, which tells the console so, and None is returned.
    """
    if not settings.is_on:
        router.add_get("/auth/session", _tell_off)
        return None
    # Imported here: cryptography and token code take 0.1 s to import, and most facades do not use sign-in.
    from services.facade.sign_in.routes import SignIn

    sign_in = SignIn(settings, auth, refused)
    router.add_get("/auth/sign-in", sign_in.begin)
    router.add_get("/auth/callback", sign_in.finish)
    router.add_get("/auth/session", sign_in.describe)
    router.add_post("/auth/refresh", sign_in.refresh)
    router.add_post("/auth/sign-out", sign_in.end)
    return sign_in.sessions


async def _tell_off(_: web.Request) -> web.StreamResponse:
    return envelope.wrap_data({"signIn": False})
