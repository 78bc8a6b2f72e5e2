"""Authenticates a request and runs its RPCs as that user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from headrace.errors import CredentialEnded, Unauthenticated
from services.facade.middleware.request_lifecycle import Handler
from services.facade.requests.body import read_single_header
from services.runtime import local_users
from services.runtime.auth import identity
from services.runtime.auth.authenticator import API_KEY, AUTHORIZATION, Authenticator
from services.runtime.auth.identity import Identity, acting_as
from services.runtime.capacity import get_turnstile

if TYPE_CHECKING:
    from services.facade.sign_in.sessions import Sessions

GUARDED = ("/api/", "/v1/", "/agui", "/mcp", "/a2a")
"""Path prefixes that need a credential; console, health, metrics and the OpenAPI document are public."""


class CredentialCheck:
    def __init__(self, authenticator: Authenticator, sessions: Sessions | None) -> None:
        """`sessions` are those of signed-in users; None without sign-in."""
        self._authenticator = authenticator
        self._sessions = sessions

    @web.middleware
    async def check_credentials(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Authenticate the request, wait for the tenant's turn, and serve it as that user.

        Raises:
            Unauthenticated: The credential is missing or wrong.
            CredentialEnded: The credential has ended, possibly during the request; a session must be refreshed; or the
                user is suspended.
            PermissionDenied: Without authentication, another user of this machine called; or a page of another origin
                used a session.
            Overloaded: The credential cannot be checked now.
        """
        if not request.path.startswith(GUARDED):
            return await handler(request)
        given = {
            name: value for name in (AUTHORIZATION, API_KEY) if (value := read_single_header(request, name)) is not None
        }
        who = self._sessions.identify(request) if self._sessions is not None and not given else None
        try:
            if who is None:
                who = await self._identify_client(request, given)
            else:
                await self._authenticator.check_user(who)
        except (Unauthenticated, CredentialEnded):
            self._authenticator.refused.note(request.remote or "")
            raise
        with acting_as(who):
            await get_turnstile().pass_through(identity.current_tenant())
            async with self._authenticator.ending_with_credential(who):
                return await handler(request)

    async def _identify_client(self, request: web.Request, given: dict[str, str]) -> Identity:
        transport = request.transport

        def is_foreign_user() -> bool:
            return transport is not None and local_users.is_foreign_user(transport)

        return await self._authenticator.identify_client(given, is_foreign_user)
