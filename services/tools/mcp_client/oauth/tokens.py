"""Exchanges codes and refresh tokens for new tokens, by requests to authorization servers.

Untrusted parties name these servers: the MCP server's response, or metadata it refers to. So requests go only to
checked addresses, over https, without redirects, and read bounded responses.
"""

from __future__ import annotations

import asyncio
import base64
import time
from typing import Any
from urllib.parse import quote

import httpx2
import msgspec

from services.runtime.net.allow_list import AllowList
from services.runtime.net.authorization_code import is_safe_url
from services.runtime.net.targets import TargetRefused, checked_addresses, parse_target, resolve_name
from services.tools.mcp_client.oauth.token_store import Client, Issuer, Pending, Token
from services.tools.web.fetcher import load_http_client

TIMEOUT_S = 15.0

ANSWER_BYTES_MAX = 256 * 1024

LASTS_S_MAX = 10 * 365 * 24 * 3600.0
"""Maximum lifetime of a token; longer ones are cut to ten years, which calendars can represent."""

EARLY_S = 60.0
"""How long before its end a token is renewed."""

TOKEN_CHARS_MAX = 4_000
"""Maximum length of an access token, which is a header's value."""


class AuthorizationFailed(Exception):
    """An authorization server cannot be used, or refuses; the text explains it without secrets."""


class TokensRefused(AuthorizationFailed):
    """It no longer accepts a code or a refresh token."""


async def send(request: httpx2.Request, allow: AllowList, timeout_s: float = TIMEOUT_S) -> httpx2.Response:
    """Send the request and read the response, of any status. `allow` lists reachable hosts outside the public web.

    Raises:
        AuthorizationFailed: The server is not allowed, or does not answer.
    """
    check_url(str(request.url))
    await load_http_client()
    import aiohttp

    from services.runtime.net.pinned_connection import pinned_session, read_bounded_body

    headers = {name: value for name, value in request.headers.items() if name not in ("host", "content-length")}
    options: dict[str, Any] = {"data": request.content or None, "allow_redirects": False}
    options["headers"] = {"accept-encoding": "identity"} | headers
    try:
        async with asyncio.timeout(timeout_s):
            target = parse_target(str(request.url), allow)
            addresses = await checked_addresses(target, resolve_name, allow)
            async with (
                pinned_session(addresses) as session,
                session.request(request.method, target.url, **options) as response,
            ):
                return httpx2.Response(response.status, content=await read_bounded_body(response, ANSWER_BYTES_MAX))
    except TargetRefused as error:
        raise AuthorizationFailed(f"{error} (oauth.hosts in mcp.json opens hosts)") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:  # TimeoutError is an OSError
        # The error's own text may contain the address with its parameters.
        raise AuthorizationFailed(f"{request.url.host} does not answer ({type(error).__name__})") from error


def check_url(url: str) -> None:
    if not is_safe_url(url):
        raise AuthorizationFailed("an address that it names is not https")


class _Answer(msgspec.Struct):
    access_token: str
    # Some servers write null where they say nothing, and a number as text.
    token_type: str | None = None
    refresh_token: str | None = None
    expires_in: float | None = None


async def exchange_code(pending: Pending, code: str, allow: AllowList) -> Token:
    """Return the token for a code; `allow` as in `send`. Raises AuthorizationFailed."""
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": pending.redirect_url,
        "code_verifier": pending.verifier,
    }
    answer = await _ask(pending.issuer, form, allow)
    names = (pending.server, pending.tenant, pending.user)
    asked = Token(*names, pending.issuer, "", agreed_at=time.time(), scope=pending.scope)
    return _make_token(asked, answer)


async def renew(token: Token, allow: AllowList) -> Token:
    """Return a renewed token. Raises TokensRefused if the user must consent again, AuthorizationFailed if the server
    does not answer."""
    form = {"grant_type": "refresh_token", "refresh_token": token.refresh}
    return _make_token(token, await _ask(token.issuer, form, allow))


async def revoke(token: Token, allow: AllowList) -> bool:
    """Ask the authorization server to revoke the tokens (RFC 7009); return whether it confirms."""
    endpoint = token.issuer.revocation_endpoint
    if not endpoint:
        return False
    kinds = {"refresh_token": token.refresh, "access_token": token.access}
    for kind, value in kinds.items():
        if not value:
            continue
        # Servers of the Python SDK (mcp 2.3.0) require the field from every client; RFC 6749, 2.3.1, allows it to be
        # empty.
        form = {"client_secret": "", "token": value, "token_type_hint": kind}
        form, headers = _authenticate(token.issuer.client, form)
        response = await send(httpx2.Request("POST", endpoint, data=form, headers=headers), allow)
        if response.status_code != 200:
            raise AuthorizationFailed(f"the authorization server answers with status {response.status_code}")
    return True


def is_due(token: Token) -> bool:
    return bool(token.expires_at) and time.time() > token.expires_at - EARLY_S


def _authenticate(client: Client, form: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the form and the headers with Headrace's client credentials."""
    headers = {"Accept": "application/json"}
    form = {**form, "client_id": client.client_id}
    if client.auth_method == "client_secret_basic":
        pair = f"{quote(client.client_id, safe='')}:{quote(client.client_secret, safe='')}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    elif client.auth_method == "client_secret_post":
        form["client_secret"] = client.client_secret
    return form, headers


async def _ask(issuer: Issuer, form: dict[str, str], allow: AllowList) -> _Answer:
    form, headers = _authenticate(issuer.client, {**form, "resource": issuer.resource})
    response = await send(httpx2.Request("POST", issuer.token_endpoint, data=form, headers=headers), allow)
    if response.status_code in (400, 401, 403):
        raise TokensRefused("the authorization server takes it no more")
    if response.status_code not in (200, 201):
        raise AuthorizationFailed(f"the authorization server answers with status {response.status_code}")
    try:
        answer = msgspec.convert(msgspec.json.decode(response.content), _Answer, strict=False)
    except (msgspec.MsgspecError, RecursionError):
        raise AuthorizationFailed("the authorization server's answer has no token") from None
    token = answer.access_token
    if (answer.token_type or "bearer").casefold() != "bearer" or not 0 < len(token) <= TOKEN_CHARS_MAX:
        raise AuthorizationFailed("the authorization server gives a token of another kind")
    if not token.isascii() or not token.isprintable():
        raise AuthorizationFailed("the authorization server gives a token that is none")
    return answer


def _make_token(before: Token, answer: _Answer) -> Token:
    lasts_s = min(answer.expires_in or 0.0, LASTS_S_MAX)
    return msgspec.structs.replace(
        before,
        access=answer.access_token,
        refresh=answer.refresh_token or before.refresh,
        expires_at=time.time() + lasts_s if lasts_s > 0 else 0.0,
    )
