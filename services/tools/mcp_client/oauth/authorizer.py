"""The tokens of one server's users: lookup, renewal, authorization requests.

The address for a user's consent is discovered from the server's 401, as its protocol version specifies.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections import defaultdict

import httpx2
import msgspec
import structlog
from mcp.client.auth import OAuthFlowError
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    create_client_registration_request,
    create_oauth_metadata_request,
    handle_auth_metadata_response,
    handle_protected_resource_response,
    handle_registration_response,
    issuers_match,
    should_use_client_metadata_url,
    union_scopes,
)
from mcp.shared.auth import OAuthClientMetadata, OAuthMetadata, ProtectedResourceMetadata
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url
from pydantic import AnyUrl, ValidationError

from headrace.v1 import common_pb2
from services.runtime.auth.identity import Identity
from services.runtime.net.authorization_code import add_query, make_challenge
from services.tools.errors import InputNeeded, ToolFailed
from services.tools.mcp_client.oauth.token_store import Client, Issuer, Pending, Token, TokenStore
from services.tools.mcp_client.oauth.tokens import AuthorizationFailed, TokensRefused, check_url, is_due, renew, send
from services.tools.mcp_client.sdk_errors import Challenge
from services.tools.mcp_client.settings import Http, OAuth

log = structlog.get_logger()

AUTHORIZE = "authorize-"
"""Prefix of the name of a consent question."""

RESUME_STATE = "authorize"
"""State in a call's record while its user is asked to consent; then the call starts over."""

AUTH_METHODS = ("none", "client_secret_basic", "client_secret_post")

OFFLINE = "offline_access"
"""The scope for which many authorization servers give a refresh token."""

METADATA = (
    *("resource", "authorization_servers", "scopes_supported"),
    *("issuer", "authorization_endpoint", "token_endpoint", "registration_endpoint", "revocation_endpoint"),
    *("token_endpoint_auth_methods_supported", "code_challenge_methods_supported"),
    *("client_id_metadata_document_supported", "authorization_response_iss_parameter_supported"),
)
"""Members of servers' metadata that are used."""

ADDRESS_CHARS_MAX = 4_000


class Authorizer:
    def __init__(self, server: str, settings: Http, store: TokenStore) -> None:
        self._server = server
        self._settings = settings
        self._store = store
        self._renewing: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)

    async def find_header(self, caller: Identity) -> str:
        """Return the user's Authorization header; empty if the user has not consented, or must do so again."""
        token = await asyncio.to_thread(self._store.find_token, self._server, caller)
        if token is not None and is_due(token):
            token = await self._renew(caller, token)
        return token.header if token is not None else ""

    async def ask(self, caller: Identity, refused: str, challenge: Challenge) -> InputNeeded:
        """Return the question that sends the user to the consent page. `refused` is the header that the server refused.

        Raises:
            ToolFailed: The page cannot be found.
        """
        token = await asyncio.to_thread(self._store.find_token, self._server, caller)
        held_scope = ""
        if token is not None and token.header == refused:
            if challenge.wants_more:
                held_scope = token.scope  # the token is good for the other calls, whether or not the user consents
            else:
                await asyncio.to_thread(self._drop, token)
        try:
            url = await start(self._server, self._settings, self._store, caller, challenge, held_scope)
        except AuthorizationFailed as failure:
            text = f"MCP server {self._server!r} wants the user's authorization: {failure}"
            raise ToolFailed(text) from failure
        name = AUTHORIZE + hashlib.sha256(url.encode()).hexdigest()[:16]
        message = "Authorize Headrace to use it for you"
        need = common_pb2.InputNeed(name=name, server=self._server, message=message, url=url, authorizes=True)
        return InputNeeded([need], RESUME_STATE)

    def _drop(self, token: Token) -> None:
        """Delete a refused token, and the registration: an authorization server that was set up anew knows neither."""
        assert self._settings.oauth is not None
        self._store.delete_token(token)
        self._store.take_client(token.server, token.issuer.issuer, self._settings.oauth.redirect_url)

    async def _renew(self, user: Identity, due: Token) -> Token | None:
        # One at a time: a refresh token may be good for one use.
        async with self._renewing[user.tenant, user.user]:
            token = await asyncio.to_thread(self._store.find_token, self._server, user)
            if token is None or not is_due(token):
                return token
            try:
                if not token.refresh:
                    raise TokensRefused("there is no refresh token")
                renewed = await renew(token, self._settings.allow)
            except TokensRefused:
                await asyncio.to_thread(self._drop, token)
                # Another replica may have used the refresh token just now.
                return await asyncio.to_thread(self._store.find_token, self._server, user)
            except AuthorizationFailed as failure:
                log.warning("token not renewed", server=self._server, problem=str(failure))
                return due  # which its server may take for a minute yet
            is_kept = await asyncio.to_thread(self._store.put_renewed, token, renewed)
            return renewed if is_kept else None


async def start(
    server: str, settings: Http, store: TokenStore, caller: Identity, challenge: Challenge, held_scope: str = ""
) -> str:
    """Return the address of the consent page, and store the pending authorization. `held_scope` is asked for again.

    Raises:
        AuthorizationFailed: There is no such page.
    """
    granted = settings.oauth
    assert granted is not None
    try:
        resource = await _find_resource(settings, challenge)
        found = await _find_server(settings, resource)
        scope = granted.scope or union_scopes(held_scope, _choose_scope(challenge, resource, found)) or ""
        client = await _find_client(server, store, settings, granted, found, scope)
    except (OAuthFlowError, ValidationError, ValueError) as error:
        raise AuthorizationFailed(f"its authorization server cannot be used ({type(error).__name__})") from error
    state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(64)
    name = str(resource.resource) if resource is not None else resource_url_from_server_url(settings.url)
    issuer = Issuer(
        *(str(found.issuer), str(found.token_endpoint), name, client),
        revocation_endpoint=str(found.revocation_endpoint or ""),
    )
    pending = Pending(
        *(server, caller.tenant, caller.user, issuer, verifier, granted.redirect_url),
        says_issuer=bool(found.authorization_response_iss_parameter_supported),
        made_at=time.time(),
        scope=scope,
    )
    store.put_pending(state, pending)
    return _build_address(str(found.authorization_endpoint), pending, state)


def _choose_scope(challenge: Challenge, resource: ProtectedResourceMetadata | None, found: OAuthMetadata) -> str:
    """Return what the server's 401 or its metadata ask for; empty, where they say nothing: not all that its
    authorization server can grant."""
    names = (challenge.scope.split() or (found if resource is None else resource).scopes_supported) or []
    keeps = OFFLINE in (found.scopes_supported or ()) and OFFLINE not in names
    return " ".join([*names, OFFLINE] if names and keeps else names)


def _build_address(endpoint: str, pending: Pending, state: str) -> str:
    query = {
        "response_type": "code",
        "client_id": pending.issuer.client.client_id,
        "redirect_uri": pending.redirect_url,
        "state": state,
        "code_challenge": make_challenge(pending.verifier),
        "code_challenge_method": "S256",
        "resource": pending.issuer.resource,
    }
    query |= {"scope": pending.scope} if pending.scope else {}
    if OFFLINE in pending.scope.split():
        query["prompt"] = "consent"  # without which OpenID Connect ignores that scope
    address = add_query(endpoint, query)
    if len(address) > ADDRESS_CHARS_MAX:
        raise AuthorizationFailed("the address of its authorization server is too long")
    return address


async def _find_resource(settings: Http, challenge: Challenge) -> ProtectedResourceMetadata | None:
    """Return the server's metadata about its authorization servers; None if it has none, as in 2025-03-26."""
    for address in build_protected_resource_metadata_discovery_urls(challenge.resource_metadata or None, settings.url):
        try:
            response = await send(create_oauth_metadata_request(address), settings.allow)
        except AuthorizationFailed:
            if address != challenge.resource_metadata:
                raise
            continue  # such as http:// from a server whose proxy ends TLS; the well-known places remain
        if response.status_code >= 500:
            raise AuthorizationFailed(f"its metadata is not available (status {response.status_code})")
        if (found := await handle_protected_resource_response(_leave_out_unused(response))) is None:
            continue
        # Or a token that is meant for another server would be asked for, and given to this one.
        if not check_resource_allowed(resource_url_from_server_url(settings.url), str(found.resource)):
            raise AuthorizationFailed("its metadata is another server's")
        return found
    return None


def _leave_out_unused(response: httpx2.Response) -> httpx2.Response:
    """Return a response whose metadata have only what is used here, so that nothing else in them can be wrong.

    An empty value counts as absent.
    """
    try:
        stated = msgspec.json.decode(response.content)
    except msgspec.DecodeError:
        return response
    if not isinstance(stated, dict):
        return response
    used = {name: stated[name] for name in METADATA if stated.get(name) not in (None, "")}
    return httpx2.Response(response.status_code, content=msgspec.json.encode(used))


async def _find_server(settings: Http, resource: ProtectedResourceMetadata | None) -> OAuthMetadata:
    issuer = str(resource.authorization_servers[0]) if resource is not None else None
    if issuer is not None:
        check_url(issuer)
    own = httpx2.URL(settings.url)
    expected = issuer or f"{own.scheme}://{own.netloc.decode()}"
    for address in build_oauth_authorization_server_metadata_discovery_urls(issuer, settings.url):
        response = await send(create_oauth_metadata_request(address), settings.allow)
        is_usable, found = await handle_auth_metadata_response(_leave_out_unused(response))
        if not is_usable:
            break
        if found is not None:
            if not issuers_match(str(found.issuer), expected):
                raise AuthorizationFailed("its authorization server's metadata are another's")
            if "S256" not in (found.code_challenge_methods_supported or ()):
                raise AuthorizationFailed("its authorization server does not support PKCE (S256)")
            for endpoint in (found.authorization_endpoint, found.token_endpoint):
                check_url(str(endpoint))
            return found
    raise AuthorizationFailed("its authorization server has no metadata")


async def _find_client(
    server: str, store: TokenStore, settings: Http, granted: OAuth, found: OAuthMetadata, scope: str
) -> Client:
    """Return Headrace's client identity there: registered by the operator, by its metadata document, or dynamically."""
    methods = found.token_endpoint_auth_methods_supported or []
    secret_method = "client_secret_post" if methods and "client_secret_basic" not in methods else "client_secret_basic"
    if granted.client_id:
        return Client(granted.client_id, granted.client_secret, secret_method if granted.client_secret else "none")
    if should_use_client_metadata_url(found, granted.client_metadata_url or None):
        return Client(granted.client_metadata_url)
    known = store.take_client(server, str(found.issuer), granted.redirect_url)
    if known is not None and known.is_usable(scope):
        return known
    if found.registration_endpoint is None:
        raise AuthorizationFailed("its authorization server does not register clients: oauth.clientId is needed")
    wanted = OAuthClientMetadata(
        client_name="Headrace",
        redirect_uris=[AnyUrl(granted.redirect_url)],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method=secret_method if methods and "none" not in methods else "none",
        application_type="web" if granted.redirect_url.startswith("https://") else "native",
        scope=scope or None,
    )
    response = await send(create_client_registration_request(found, wanted, ""), settings.allow)
    if response.status_code not in (200, 201):
        raise AuthorizationFailed(
            f"its authorization server refuses to register a client ({response.status_code}): oauth.clientId is needed"
        )
    registered = await handle_registration_response(response)
    secret = registered.client_secret or ""
    method = registered.token_endpoint_auth_method or (secret_method if secret else "none")
    if method not in AUTH_METHODS or not registered.client_id:
        raise AuthorizationFailed("its authorization server registers clients of another kind")
    ends_at = registered.client_secret_expires_at or 0.0
    return Client(registered.client_id, secret, method, True, registered.scope or "", ends_at)
