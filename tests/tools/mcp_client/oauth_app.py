"""A server that requires each user's authorization, with the SDK's in-memory authorization server."""

import secrets
import time
from typing import Any

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from mcp_types import Tool
from pydantic import AnyHttpUrl

from tests.support.tools.mcp_http import Http

SCOPE = "read"


class Authority(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Grants every authorization at once, to the user `person`."""

    def __init__(self) -> None:
        self.person = "ann"
        self.lasts_s = 3600
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.renewals = 0

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        assert client_info.client_id is not None
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = AuthorizationCode(
            code=secrets.token_urlsafe(32),
            scopes=params.scopes or [SCOPE],
            expires_at=time.time() + 60,
            client_id=client.client_id or "",
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=True,
            resource=params.resource,
            subject=self.person,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._issue(client, authorization_code)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        del self.refresh[refresh_token.token]  # each is good for one use
        self.renewals += 1
        return self._issue(client, refresh_token)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.pop(token.token, None)
        self.refresh.pop(token.token, None)

    def _issue(self, client: OAuthClientInformationFull, granted: Any) -> OAuthToken:
        common: dict[str, Any] = {
            "client_id": client.client_id or "",
            "scopes": granted.scopes,
            "resource": granted.resource,
            "subject": granted.subject,
        }
        access = AccessToken(token=secrets.token_urlsafe(32), expires_at=int(time.time()) + 3600, **common)
        refresh = RefreshToken(token=secrets.token_urlsafe(32), **common)
        self.access[access.token], self.refresh[refresh.token] = access, refresh
        return OAuthToken(
            access_token=access.token,
            expires_in=self.lasts_s,
            refresh_token=refresh.token,
            scope=" ".join(granted.scopes),
        )


def _find_person() -> str:
    token = get_access_token()
    return token.subject or "" if token is not None else "nobody"


class _Protected(MCPServer):
    async def list_tools(self) -> list[Tool]:
        """List `whoami`, and a tool whose name and description depend on the user."""
        person = _find_person()
        own = Tool(name=f"of_{person}", description=f"Only {person} sees this.", input_schema={"type": "object"})
        return [*await super().list_tools(), own]


def make_protected_app(authority: Authority, http: Http) -> MCPServer:
    origin = f"http://127.0.0.1:{http.port}"
    settings = AuthSettings(
        issuer_url=AnyHttpUrl(origin),
        resource_server_url=AnyHttpUrl(http.url),
        required_scopes=[SCOPE],
        validate_token_resource=True,
        client_registration_options=ClientRegistrationOptions(
            enabled=True, valid_scopes=[SCOPE], default_scopes=[SCOPE]
        ),
        revocation_options=RevocationOptions(enabled=True),
    )
    app = _Protected("protected", auth_server_provider=authority, auth=settings)

    @app.tool()
    def whoami() -> str:
        """Tell who has authorized the call."""
        return _find_person()

    return app
