"""Client of the OpenID provider: discovery, token endpoint and revocation.

https://openid.net/specs/openid-connect-core-1_0.html, https://www.rfc-editor.org/rfc/rfc9700
"""

from __future__ import annotations

import asyncio
import base64
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus

import aiohttp
import orjson
import structlog

from headrace.errors import Overloaded, Unauthenticated
from services.facade.sign_in.settings import SignInSettings
from services.runtime.auth.identity import Identity
from services.runtime.auth.jwts import FetchedKeys, JwtVerifier
from services.runtime.auth.settings import AuthSettings
from services.runtime.clock import monotonic_s
from services.runtime.net.authorization_code import add_query, is_safe_url
from services.runtime.net.pinned_connection import read_bounded_body

ANSWER_BYTES_MAX = 1024 * 1024
TIMEOUT_S = 10.0

AGE_S_MAX = 3600.0
"""Age at which the provider's metadata is fetched again."""

RETRY_S = 5.0
"""Minimum time between two fetches of the metadata, because sign-in needs no credential."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Description:
    """The provider's metadata (OpenID Connect Discovery)."""

    authorization_url: str
    token_url: str
    revocation_url: str
    end_session_url: str
    """Empty, like `revocation_url`, if the provider has no such endpoint."""

    sends_secret_in_body: bool
    names_itself: bool
    """Whether the provider's answers contain its issuer (RFC 9207)."""

    verifier: JwtVerifier


@dataclass(frozen=True, slots=True)
class Grant:
    """A verified token response."""

    identity: Identity
    expires_s: float
    """Expiry of the ID token in Unix seconds."""

    refresh_token: str
    """Empty if the provider sent none."""


class OpenIdProvider:
    def __init__(self, settings: SignInSettings, auth: AuthSettings) -> None:
        self._settings = settings
        self._auth = auth
        self._description: Description | None = None
        self._described_at = self._tried_at = -float("inf")
        self._describing = asyncio.Lock()

    async def describe(self) -> Description:
        """Return the provider's metadata; raise Overloaded if it cannot be fetched."""
        async with self._describing:
            age_s = monotonic_s() - self._described_at
            if age_s > AGE_S_MAX and monotonic_s() - self._tried_at > RETRY_S:
                self._tried_at = monotonic_s()
                await self._fetch_description()
        if self._description is None:
            raise Overloaded("the sign-in provider cannot be reached now", retry_after_s=RETRY_S)
        return self._description

    async def build_sign_in_url(self, state: str, nonce: str, challenge: str) -> str:
        """Return the provider's URL to which to redirect the browser."""
        description = await self.describe()
        return add_query(
            description.authorization_url,
            {
                "response_type": "code",
                "client_id": self._settings.oidc_client_id,
                "redirect_uri": self._settings.callback_url,
                "scope": self._settings.oidc_scopes,
                "state": state,
                "nonce": nonce,
                "code_challenge": challenge,
                "code_challenge_method": "S256",
            },
        )

    async def build_sign_out_url(self) -> str:
        """Return the URL at which the provider ends its own session; empty if it has none."""
        url = (await self.describe()).end_session_url
        back = {"client_id": self._settings.oidc_client_id, "post_logout_redirect_uri": f"{self._settings.public_url}/"}
        return add_query(url, back) if url else ""

    async def redeem_code(self, code: str, code_verifier: str, nonce: str) -> Grant:
        """Exchange an authorization code for a grant; raises the errors of `refresh`."""
        answer = await self._ask_for_tokens(
            {
                "grant_type": "authorization_code",
                "code": code,
                "redirect_uri": self._settings.callback_url,
                "code_verifier": code_verifier,
            }
        )
        return await self._verify_grant(answer, nonce)

    async def refresh(self, refresh_token: str) -> Grant:
        """Refresh a session at the provider and return the new grant.

        Raises:
            Unauthenticated: The session has ended, or the token is not for this client.
            Overloaded: The provider cannot be reached.
        """
        answer = await self._ask_for_tokens({"grant_type": "refresh_token", "refresh_token": refresh_token})
        answer.setdefault("refresh_token", refresh_token)
        return await self._verify_grant(answer, None)

    async def revoke(self, refresh_token: str) -> None:
        """Revoke a refresh token at the provider; raise Overloaded if the provider cannot be reached."""
        description = await self.describe()
        if description.revocation_url and refresh_token:
            form = {"token": refresh_token, "token_type_hint": "refresh_token"}
            await self._send(description.revocation_url, *self._prove_client(description, form))

    async def _verify_grant(self, answer: dict[str, Any], nonce: str | None) -> Grant:
        description = await self.describe()
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise Unauthenticated("the provider has sent no ID token")
        identity, claims = await description.verifier.verify_claims(token)
        if nonce is not None and not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise Unauthenticated("the ID token is of another sign-in")
        # An ID token with several audiences must name its client in `azp`.
        implied = "" if isinstance(claims["aud"], list) and len(claims["aud"]) > 1 else self._settings.oidc_client_id
        if claims.get("azp", implied) != self._settings.oidc_client_id:
            raise Unauthenticated("the ID token was made for another client")
        given = answer.get("refresh_token")
        return Grant(identity, float(claims["exp"]), given if isinstance(given, str) else "")

    async def _ask_for_tokens(self, form: dict[str, str]) -> dict[str, Any]:
        description = await self.describe()
        status, answer = await self._send(description.token_url, *self._prove_client(description, form))
        if status == 200:
            return answer
        problem = str(answer.get("error", ""))[:64]
        log.info("sign-in provider refused", status=status, problem=problem, grant=form["grant_type"])
        if problem == "invalid_grant":
            raise Unauthenticated("the provider does not take this sign-in (any more); sign in again")
        raise Overloaded(f"the sign-in provider has answered {status}; try again in a moment")

    def _prove_client(self, description: Description, form: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
        client_id, secret = self._settings.oidc_client_id, self._settings.oidc_client_secret
        if not secret:
            return form | {"client_id": client_id}, {}
        if description.sends_secret_in_body:
            return form | {"client_id": client_id, "client_secret": secret}, {}
        # Both are form-encoded first: https://www.rfc-editor.org/rfc/rfc6749#section-2.3.1
        pair = f"{quote_plus(client_id)}:{quote_plus(secret)}"
        return form, {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}

    async def _fetch_description(self) -> None:
        url = f"{self._settings.oidc_issuer.rstrip('/')}/.well-known/openid-configuration"
        try:
            status, content = await self._send(url, None, {})
            if status != 200:
                raise ValueError(f"status {status}")
            self._description = self._read_description(content)
        except (Overloaded, ValueError) as error:
            log.warning("sign-in provider not described", url=url, problem=str(error))
        else:
            self._described_at = self._tried_at

    def _read_description(self, content: dict[str, Any]) -> Description:
        issuer = self._settings.oidc_issuer
        if content.get("issuer") != issuer:
            raise ValueError(f"its issuer is {content.get('issuer')!r}, expected {issuer!r}")
        urls = [
            content.get(f"{name}_endpoint") or "" for name in ("authorization", "token", "revocation", "end_session")
        ]
        keys_url = content.get("jwks_uri") or ""
        for url in (*filter(None, urls), urls[0], urls[1], keys_url):
            if not isinstance(url, str) or not is_safe_url(url):
                raise ValueError(f"an endpoint is missing or has no TLS: {url!r}")
        methods = content.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        return Description(
            *urls,
            sends_secret_in_body="client_secret_basic" not in methods and "client_secret_post" in methods,
            names_itself=content.get("authorization_response_iss_parameter_supported") is True,
            verifier=JwtVerifier.from_settings(
                self._auth, FetchedKeys(keys_url), issuer, self._settings.oidc_client_id
            ),
        )

    async def _send(
        self, url: str, form: Mapping[str, str] | None, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, Any]]:
        """Post a form, or send a GET without one; return the status and the answer's JSON object."""
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        accepting = {"Accept": "application/json", **headers}
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as http,
                http.request(
                    "GET" if form is None else "POST", url, data=form, headers=accepting, allow_redirects=False
                ) as response,
            ):
                body = await read_bounded_body(response, ANSWER_BYTES_MAX)
        except (aiohttp.ClientError, OSError, ValueError) as error:  # a timeout is an OSError
            raise Overloaded(f"the sign-in provider cannot be reached: {type(error).__name__}") from error
        return response.status, _parse_object(body)


def _parse_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object; empty for any other body, such as a proxy's error page."""
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return content if isinstance(content, dict) else {}
