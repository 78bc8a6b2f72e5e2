"""Address and credentials of a provider, from its entry, the environment, or a cloud.

AWS signs each request; Google issues a token with a lifetime. Both are found in the same places as by the vendor's own
libraries: the environment, files, the metadata service of the machine or the identity of the pod. Google's library is
in the extra `cloud`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from headrace.errors import ProviderAuthentication, ProviderUnavailable
from headrace.tls import Tls
from services.llm_gateway.providers.provider_file import Provider
from services.llm_gateway.providers.route import Proxy, Route, find_environment_proxy, parse_proxy
from services.runtime.files.named_secrets import SECRET_PLACES, read_secret

if TYPE_CHECKING:
    from services.runtime.net.aws import AwsSession

WHERE = "the gateway's environment; `headrace up` reads it from .env, too, when it starts"

TIMEOUT_S = 10.0
"""Longest wait for a metadata or token service."""

SCOPE = "https://www.googleapis.com/auth/cloud-platform"

AWS_SERVICE = "bedrock"


@dataclass(frozen=True, slots=True)
class Endpoint:
    url: str = field(repr=False)
    """Address with its query, which may contain a secret."""

    headers: Mapping[str, str] = field(repr=False)
    """The entry's own headers."""

    secrets: tuple[str, ...] = field(repr=False)
    """Texts to mask in errors and logs, in addition to the key."""

    route: Route


class Credentials:
    """Looks up secrets at each call, so that a rotated file takes effect at once."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env

    def __repr__(self) -> str:
        return "Credentials(***)"

    def find_keys(self, provider: Provider) -> tuple[str, ...]:
        """Return the keys in order; an empty key if none is needed, and two with a cloud's credentials: if it refuses
        them, the second attempt has those that are valid now.

        Raises:
            ProviderAuthentication: No key is set.
        """
        if not provider.api_keys:
            return ("",) if provider.credentials == "keys" else ("", "")
        if keys := tuple(key for name in provider.api_keys if (key := read_secret(name, self._env))):
            return keys
        places = ", ".join(provider.api_keys)
        raise ProviderAuthentication(
            f"provider {provider.key!r} has no key: none of {places} is set in {WHERE}",
            provider=provider.key,
        )

    def find_endpoint(
        self, provider: Provider, model: str, path: str, protocol_query: Mapping[str, str] | None = None
    ) -> Endpoint:
        """Return the endpoint of a model; `{model}` in `path` is replaced by its name.

        Raises:
            ProviderUnavailable: The variable of the address is not set, or the proxy's address is invalid.
            ProviderAuthentication: The secret of a header or parameter is not set.
        """
        url = self._find_base_url(provider) + path.replace("{model}", quote(model, safe=""))
        headers = {name: self._look_up(provider, name, value) for name, value in provider.headers.items()}
        query = {name: self._look_up(provider, name, value) for name, value in provider.query.items()}
        given, found = provider.headers | provider.query, headers | query
        secrets = [found[name] for name, value in given.items() if value.startswith(SECRET_PLACES)]
        if provider.organization:
            headers = {"OpenAI-Organization": provider.organization} | headers
        proxy = self._find_proxy(provider, url)
        if proxy is not None and proxy.authorization:
            secrets.append(proxy.authorization)
        if query := {**(protocol_query or {}), **query}:
            url += f"?{urlencode(query, quote_via=quote)}"
        certificate = provider.cert_file or ""
        tls = Tls(provider.ca_file or "", certificate, certificate and (provider.key_file or certificate))
        return Endpoint(url, headers, tuple(secrets), Route(proxy, tls))

    def _find_base_url(self, provider: Provider) -> str:
        kind, _, name = provider.base_url.partition(":")
        base_url = self._env.get(name, "") if kind == "env" else provider.base_url
        if not base_url:
            raise ProviderUnavailable(
                f"provider {provider.key!r} has no address: {name} is not set in {WHERE}",
                provider=provider.key,
            )
        return base_url.rstrip("/")

    def _find_proxy(self, provider: Provider, url: str) -> Proxy | None:
        setting = provider.proxy
        try:
            if setting is None:
                return find_environment_proxy(url, self._env)
            if setting.startswith("env:"):
                setting = self._env.get(setting.removeprefix("env:"), "").strip() or "none"
            return None if setting == "none" else parse_proxy(setting)
        except ValueError as error:
            raise ProviderUnavailable(
                f"the proxy of provider {provider.key!r} cannot be used: {error}", provider=provider.key
            ) from None

    def _look_up(self, provider: Provider, name: str, value: str) -> str:
        if not value.startswith(SECRET_PLACES):
            return value
        if secret := read_secret(value, self._env):
            return secret
        raise ProviderAuthentication(
            f"provider {provider.key!r} lacks {name}: {value} is not set in {WHERE}",
            provider=provider.key,
        )


@dataclass(frozen=True, slots=True)
class CloudHeaders:
    headers: Mapping[str, str] = field(repr=False)

    secrets: tuple[str, ...] = field(repr=False)
    """Texts to mask in errors."""


NO_HEADERS = CloudHeaders({}, ())


class CloudCredentials:
    """One credential chain per cloud for all providers; slow work runs in a thread, one piece at a time."""

    def __init__(self) -> None:
        self._aws: AwsSession | None = None
        self._google: Any = None
        self._turn = asyncio.Lock()

    async def make_headers(self, provider: Provider, url: str, body: bytes) -> CloudHeaders:
        """Return the headers for a POST; empty for a provider with keys.

        Raises:
            ProviderAuthentication: No credentials were found, or their service refuses or does not answer.
        """
        if provider.credentials == "keys":
            return NO_HEADERS
        make = self._sign if provider.credentials == "aws" else self._get_token
        try:
            async with asyncio.timeout(TIMEOUT_S), self._turn:
                return await asyncio.to_thread(make, provider, url, body)
        except TimeoutError:
            raise _make_error(provider, f"no answer within {TIMEOUT_S:.0f} s") from None
        except ImportError as error:
            raise _make_error(provider, f"{error.name} is not installed: pip install 'headrace[cloud]'") from None

    def forget(self) -> None:
        """Ask the chains again at the next request: a file with temporary keys may have been replaced, or a person has
        signed in again (https://github.com/aws/aws-sdk/issues/531, 2022-10)."""
        self._aws = self._google = None

    def _sign(self, provider: Provider, url: str, body: bytes) -> CloudHeaders:
        # Imported only here: most providers do not need it.
        from services.runtime.net.aws import AwsSession, NoCredentials

        try:
            self._aws = self._aws or AwsSession()
            if not (region := provider.region or self._aws.find_region()):
                raise NoCredentials("no region is set")
            signed = self._aws.sign(AWS_SERVICE, region, "POST", url, {}, body)
        except NoCredentials as error:
            raise _make_error(provider, str(error)) from None
        return CloudHeaders(signed.headers, signed.secrets)

    def _get_token(self, provider: Provider, url: str, body: bytes) -> CloudHeaders:
        auth, transport = import_module("google.auth"), import_module("google.auth.transport.urllib3")
        try:
            if self._google is None:
                self._google, _ = auth.default(scopes=[SCOPE])
            if not self._google.valid:
                pool = import_module("urllib3").PoolManager(timeout=TIMEOUT_S)
                self._google.refresh(transport.Request(pool))
        except auth.exceptions.GoogleAuthError as error:
            raise _make_error(provider, str(error)) from None
        token: str = self._google.token
        project: str | None = getattr(self._google, "quota_project_id", None)
        headers = {"Authorization": f"Bearer {token}"} | ({"x-goog-user-project": project} if project else {})
        return CloudHeaders(headers, (token,))


def _make_error(provider: Provider, what: str) -> ProviderAuthentication:
    return ProviderAuthentication(
        f"provider {provider.key!r} has no credentials of {provider.credentials}: {what}", provider=provider.key
    )
