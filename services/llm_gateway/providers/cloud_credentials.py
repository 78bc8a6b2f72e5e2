"""Headers by the credentials of a cloud: AWS signs each request, Google gives a token that lasts.

Both are found as the vendor's own libraries find them: in the environment, in files, from the metadata service of the
machine or the identity of the pod. Google's library is in the extra `cloud`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from headrace.errors import ProviderAuthentication

if TYPE_CHECKING:
    from collections.abc import Mapping

    from services.llm_gateway.providers.provider_file import Provider
    from services.runtime.net.aws import AwsSession

TIMEOUT_S = 10.0
"""Longest wait for a metadata or token service."""

SCOPE = "https://www.googleapis.com/auth/cloud-platform"

AWS_SERVICE = "bedrock"


@dataclass(frozen=True, slots=True)
class CloudHeaders:
    headers: Mapping[str, str] = field(repr=False)

    secrets: tuple[str, ...] = field(repr=False)
    """Texts to mask in errors."""


NO_HEADERS = CloudHeaders({}, ())


class CloudCredentials:
    """One chain of each cloud for all providers; what takes time is done in a thread, by one at a time."""

    def __init__(self) -> None:
        self._aws: AwsSession | None = None
        self._google: Any = None
        self._turn = asyncio.Lock()

    async def make_headers(self, provider: Provider, url: str, body: bytes) -> CloudHeaders:
        """Return the headers that a POST needs; none of a provider with keys.

        Raises:
            ProviderAuthentication: There are no credentials, or their service refuses or does not answer.
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
