"""Authenticates and authorizes each call before anything else, and ends calls when their credentials end.

A service proves its identity by its certificate (spiffe://<trust domain>/<service>) or the suite's token, and names the
user it calls for. All other callers are clients with a credential. If nothing is configured, all callers are one user
with all permissions.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING

from headrace.errors import CredentialEnded, PermissionDenied, Unauthenticated
from services.runtime.auth import callers
from services.runtime.auth.api_keys import PREFIX, ApiKeys
from services.runtime.auth.audit_records import RefusedSignIns
from services.runtime.auth.identity import (
    CREDENTIAL,
    DEFAULT,
    FILED,
    MAKERS,
    ROLES,
    SCOPES,
    TENANT,
    USER,
    Identity,
    read_forwarded,
)
from services.runtime.auth.settings import API_KEY as API_KEYS
from services.runtime.auth.settings import AuthSettings
from services.runtime.auth.stored_keys import StoredKeys
from services.runtime.clock import now_ms
from services.runtime.http2.tls import PEER_URIS

if TYPE_CHECKING:
    from services.runtime.auth.jwts import JwtVerifier


AUTHORIZATION, API_KEY = "authorization", "x-api-key"
CALLER, TOKEN = "x-headrace-caller", "x-headrace-token"
"""Headers with which a service without a certificate names and proves itself."""

WHO_ASKS = "/headrace.v1.AgentService/GetIdentity"
"""Method that does not count against a key's calls: deploy/gateway calls it before it reads a body, and then makes the
real call."""

_HEADERS = frozenset({AUTHORIZATION, API_KEY, CALLER, TOKEN, TENANT, USER, CREDENTIAL, ROLES, SCOPES, MAKERS})


class Authenticator:
    def __init__(
        self,
        settings: AuthSettings,
        api_keys: ApiKeys | None = None,
        tokens: JwtVerifier | None = None,
        keys: StoredKeys | None = None,
        *,
        has_certificates: bool = False,
    ) -> None:
        self.refused = RefusedSignIns()
        """Unknown callers, which servers record with their addresses."""
        self._settings = settings
        self._service_names = f"spiffe://{settings.trust_domain}/".encode()
        self._is_open = settings.is_none and not settings.internal_token and not has_certificates
        self._api_keys = api_keys
        self._tokens = tokens
        self._keys = keys or StoredKeys(settings.keys_good_s)
        self._takes_keys = keys is not None and API_KEYS in settings.methods
        self.open_calls = OpenCalls(self._check_credential)
        self._keys.listen(self.open_calls.look)

    async def admit_call(
        self,
        method: str,
        metadata: Iterable[tuple[str, str | bytes]],
        auth_context: Mapping[str, Iterable[bytes]],
        is_foreign_user: Callable[[], bool] = lambda: False,
        note_service: Callable[[], None] = lambda: None,
    ) -> Identity | None:
        """Return the identity that the RPC is for; None if it is the calling service itself. `is_foreign_user` returns
        whether another user of this machine calls. `note_service` is called when a service has proved itself, even if
        the user it calls for is then refused, or when no proof is needed and the call is admitted.

        Raises:
            Unauthenticated: The caller is unknown.
            CredentialEnded: Its API key is no longer valid.
            PermissionDenied: It may not call this method.
            QuotaExceeded: Its API key has used up its calls for now.
            Overloaded: Its credential cannot be checked now.
        """
        headers = _collect_headers(metadata)
        caller = self._identify_caller(headers, auth_context)
        if caller is None:
            anybody = self._admit_anybody(is_foreign_user)
            if TENANT in headers:  # only services send it; clients have no reason to
                note_service()
            return anybody
        if caller == callers.CLIENT:
            identity = await self.identify_client(headers, is_foreign_user, is_call=method != WHO_ASKS)
            callers.check_caller(caller, method)
            callers.check_method_scope(method, identity)
            return identity
        callers.check_caller(caller, method)
        note_service()
        if TENANT in headers or USER in headers:
            identity = read_forwarded(headers)
            if identity is None:
                raise Unauthenticated(
                    f"{TENANT} and {USER}: expected both, 1 to 128 visible ASCII characters each;"
                    f" {CREDENTIAL}, {ROLES}, {SCOPES}, {MAKERS}: valid ones where they are given"
                )
            if caller == callers.FACADE:  # other services call for a run, which was admitted with its query
                callers.check_method_scope(method, identity)
            return identity
        if method in callers.WITHOUT_USER:
            return None
        # A facade that does not check credentials (deploy/gateway) forwards them.
        identity = await self.identify_client(headers, is_call=method != WHO_ASKS)
        callers.check_method_scope(method, identity)
        return identity

    async def identify_client(
        self, headers: Mapping[str, str], is_foreign_user: Callable[[], bool] = lambda: False, *, is_call: bool = True
    ) -> Identity:
        """Return the owner of the credential in these headers, and count a call of a key if this `is_call`; raises like
        `admit_call`."""
        if self._settings.is_none:
            return self._admit_anybody(is_foreign_user)
        identity = await self._find_holder(headers, is_call=is_call)
        await self.check_user(identity)
        return identity

    async def check_user(self, who: Identity) -> None:
        """Raise CredentialEnded for a suspended user, Overloaded if the suspended users are not known yet."""
        await self._keys.check_user(who)

    async def _find_holder(self, headers: Mapping[str, str], *, is_call: bool) -> Identity:
        if API_KEY in headers:
            return await self._find_key_holder(headers[API_KEY], is_call=is_call)
        scheme, _, credential = headers.get(AUTHORIZATION, "").partition(" ")
        if scheme.lower() != "bearer" or not credential:
            raise Unauthenticated("show a credential: Authorization: Bearer …, or X-API-Key")
        if self._tokens is not None and credential.count(".") == 2:
            return await self._tokens.verify_token(credential)
        return await self._find_key_holder(credential, is_call=is_call)

    def ending_with_credential(self, who: Identity | None) -> AbstractAsyncContextManager[None]:
        """Run the block until the credential that `who` presented to this process ends; raises CredentialEnded."""
        return self.open_calls.ending(who) if who is not None and (who.key_id or who.ends_at) else nullcontext()

    def _check_credential(self, who: Identity) -> None:
        """Raise CredentialEnded if the credential that `who` presented to this process has ended or lost rights."""
        self._keys.check_not_suspended(who)
        if 0 < who.ends_at <= now_ms():
            raise CredentialEnded("the token or the session has expired; get a new one, or POST /auth/refresh")
        holder = who
        if who.key_id == FILED:
            found = self._api_keys.find_holder(who) if self._api_keys is not None else None
            if found is None:
                raise CredentialEnded("the API key is not in its file any more; get a new one")
            holder = found
        elif who.key_id:
            holder = self._keys.find_holder(who)
        if not (who.roles <= holder.roles and who.scopes <= holder.scopes):
            raise CredentialEnded("the API key has fewer roles or scopes by now; call again")

    def _identify_caller(self, headers: Mapping[str, str], auth_context: Mapping[str, Iterable[bytes]]) -> str | None:
        """Return the calling service, or `client`; None if all callers are admitted."""
        uris = [*auth_context.get(PEER_URIS, ())]
        if uris and any(uri.startswith(self._service_names) for uri in uris):
            if len(uris) > 1:
                raise Unauthenticated("a service's certificate has one URI name, and this one has several")
            # An unknown service may call nothing: check_caller refuses it.
            return uris[0].removeprefix(self._service_names).decode("ascii", "replace")
        token = self._settings.internal_token
        if CALLER in headers or TOKEN in headers:
            if TOKEN not in headers:
                raise Unauthenticated(f"{CALLER} is only for the suite's services, together with their token")
            if not token or not hmac.compare_digest(headers[TOKEN].encode(), token.encode()):
                raise Unauthenticated("the suite's token is not ours: HEADRACE_INTERNAL_TOKEN differs between services")
            if headers.get(CALLER) not in callers.SERVICES:
                raise Unauthenticated("the suite's token belongs to its services alone")
            return headers[CALLER]
        return None if self._is_open else callers.CLIENT

    def _admit_anybody(self, is_foreign_user: Callable[[], bool]) -> Identity:
        if not self._settings.allow_unauthenticated and is_foreign_user():
            raise PermissionDenied(
                "without credentials only the user who runs this service may call it from this machine: set "
                "HEADRACE_AUTH, or HEADRACE_ALLOW_UNAUTHENTICATED to let every user in"
            )
        return DEFAULT

    async def _find_key_holder(self, key: str, *, is_call: bool) -> Identity:
        identity = self._api_keys.find_identity(key) if self._api_keys is not None else None
        if identity is None and self._takes_keys and key.startswith(PREFIX):
            return await self._keys.find_identity(key, is_call=is_call)
        if identity is None:
            raise Unauthenticated("the credential is not valid here")
        return identity


def _collect_headers(metadata: Iterable[tuple[str, str | bytes]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for key, value in metadata:
        if key in _HEADERS:
            if key in headers:
                raise Unauthenticated(f"{key} must be given once")
            headers[key] = value if isinstance(value, str) else value.decode("latin-1")
    return headers


LOOK_S = 1.0


class OpenCalls:
    def __init__(self, check: Callable[[Identity], None]) -> None:
        """`check` raises CredentialEnded if an identity's credential has ended."""
        self._check = check
        self._open: dict[asyncio.Timeout, Identity] = {}

    @asynccontextmanager
    async def ending(self, who: Identity) -> AsyncGenerator[None]:
        """Run the block until the credential of `who` ends; raises CredentialEnded."""
        ending = asyncio.timeout(None)
        try:
            async with ending:
                self._open[ending] = who
                yield
        except TimeoutError:
            if ending.expired():
                self._check(who)
                raise CredentialEnded("the credential had ended; send it again") from None
            raise
        finally:
            self._open.pop(ending, None)

    async def watch(self) -> None:
        """Check all calls every second, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        """End the calls for which the credential has ended."""
        now = asyncio.get_running_loop().time()
        for ending, who in [*self._open.items()]:
            try:
                self._check(who)
            except CredentialEnded:
                ending.reschedule(now)
                del self._open[ending]  # each call is ended once
