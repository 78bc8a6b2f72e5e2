"""Checks a request's credential, and makes its RPCs for that user."""

from __future__ import annotations

from aiohttp import web

from services.facade.middleware.request_lifecycle import Handler
from services.facade.requests.body import read_single_header
from services.runtime.auth.authenticator import API_KEY, AUTHORIZATION, Authenticator
from services.runtime.auth.identity import acting_as

GUARDED = ("/api/", "/v1/")
"""Path prefixes that need a credential; console, health, metrics and the OpenAPI document are public."""


class CredentialCheck:
    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    @web.middleware
    async def check_credentials(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Serve the request for the user that its credential names.

        Raises:
            Unauthenticated: The credential is missing or wrong.
            Overloaded: The credential cannot be checked now.
        """
        if not request.path.startswith(GUARDED):
            return await handler(request)
        given = {
            name: value for name in (AUTHORIZATION, API_KEY) if (value := read_single_header(request, name)) is not None
        }
        with acting_as(await self._authenticator.identify_client(given)):
            return await handler(request)
